// Full KV pages that sessions of one model have computed, for others whose tokens begin alike.
#ifndef ENGINE_LIB_SESSION_PREFIX_STORE_H_
#define ENGINE_LIB_SESSION_PREFIX_STORE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "lib/contract/op.h"
#include "lib/session/kv_page.h"
#include "lib/session/token_history.h"

namespace engine {

// Any thread. A page is found by everything that its bits depend on: the pages before it, its token ids, the set
// of writing hooks, the kind. All of that is compared, not only its hash. Pages used least recently leave
// first, and none before those that build on it.
class PrefixStore {
 public:
  using PageId = uint64_t;  // never used again
  static constexpr PageId kRoot = 0;
  // What pages of all sessions of one model do not have in common.
  struct Kind {
    KvType type;
    uint32_t rope_tables = 0;  // Program::rope_tables
  };
  struct Found {
    PageId id;
    KvPageRef page;
  };

  // 0: keeps nothing. Lets go of what is too much.
  void set_limit(uint64_t max_bytes);
  bool is_on() const { return max_bytes_.load(std::memory_order_relaxed) > 0; }
  uint64_t held_bytes() const;

  // The page of kKvPagePositions ids after page `before` (kRoot: the first), taken in if it is new. kRoot when
  // it cannot be: no room, opaque writers, or `before` is gone.
  PageId add(PageId before, Kind kind, WriterSet writers, std::span<const int32_t> ids,
             const KvPageRef& page);
  // The pages of the longest known beginning of ids, all of them computed under `writers`.
  std::vector<Found> find(Kind kind, WriterSet writers, std::span<const int32_t> ids);

 private:
  struct Key {
    PageId before = kRoot;
    WriterSet writers = kNoWriters;
    uint32_t type = 0;
    uint32_t rope_tables = 0;
    std::array<int32_t, kKvPagePositions> ids{};
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    Key key;
    PageId id;
    KvPageRef page;
  };
  using Entries = std::list<Entry>;  // most recently used first
  static Key key_of(PageId before, Kind kind, WriterSet writers, std::span<const int32_t> ids);
  void touch(Entries::iterator entry);
  void make_room(uint64_t max_bytes);

  mutable std::mutex mutex_;
  std::atomic<uint64_t> max_bytes_{0};
  uint64_t bytes_ = 0;
  PageId last_id_ = kRoot;
  Entries entries_;
  std::unordered_map<Key, Entries::iterator, KeyHash> by_key_;
  std::unordered_map<PageId, Entries::iterator> by_id_;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_PREFIX_STORE_H_
