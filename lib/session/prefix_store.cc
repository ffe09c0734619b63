// A tree of pages in two indices and a list by age.
#include "lib/session/prefix_store.h"

#include <algorithm>
#include <type_traits>

#include "lib/base/hash.h"

namespace engine {

size_t PrefixStore::KeyHash::operator()(const Key& key) const {
  static_assert(std::has_unique_object_representations_v<Key>);
  return static_cast<size_t>(hash64(&key, sizeof(key)));
}

PrefixStore::Key PrefixStore::key_of(PageId before, Kind kind, WriterSet writers,
                                     std::span<const int32_t> ids) {
  Key key{before, writers, static_cast<uint32_t>(kind.type), kind.rope_tables, {}};
  std::copy_n(ids.begin(), kKvPagePositions, key.ids.begin());
  return key;
}

void PrefixStore::set_limit(uint64_t max_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  max_bytes_.store(max_bytes, std::memory_order_relaxed);
  make_room(max_bytes);
}

uint64_t PrefixStore::held_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

// With all pages before it, so that none of them is older.
void PrefixStore::touch(Entries::iterator entry) {
  for (;;) {
    entries_.splice(entries_.begin(), entries_, entry);
    const auto before = by_id_.find(entry->key.before);
    if (before == by_id_.end()) return;
    entry = before->second;
  }
}

void PrefixStore::make_room(uint64_t max_bytes) {
  while (bytes_ > max_bytes) {
    const Entry& oldest = entries_.back();
    bytes_ -= oldest.page.n_bytes();
    by_key_.erase(oldest.key);
    by_id_.erase(oldest.id);
    entries_.pop_back();
  }
}

PrefixStore::PageId PrefixStore::add(PageId before, Kind kind, WriterSet writers,
                                     std::span<const int32_t> ids, const KvPageRef& page) {
  if (writers == kOpaqueWriters) return kRoot;
  const Key key = key_of(before, kind, writers, ids);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (before != kRoot && !by_id_.contains(before)) return kRoot;
  if (const auto known = by_key_.find(key); known != by_key_.end()) {
    touch(known->second);
    return known->second->id;
  }
  const uint64_t max_bytes = max_bytes_.load(std::memory_order_relaxed);
  if (page.n_bytes() > max_bytes) return kRoot;
  if (before != kRoot) touch(by_id_.find(before)->second);
  make_room(max_bytes - page.n_bytes());
  if (before != kRoot && !by_id_.contains(before)) return kRoot;  // it had to go itself
  Entries made;
  made.push_front({key, last_id_ + 1, page});
  struct Unindex {  // when an exception passes
    PrefixStore* store;
    PageId id;
    ~Unindex() {
      if (store != nullptr) store->by_id_.erase(id);
    }
  } unindex{this, last_id_ + 1};
  by_id_.emplace(last_id_ + 1, made.begin());
  by_key_.emplace(key, made.begin());
  unindex.store = nullptr;
  entries_.splice(entries_.begin(), made);
  bytes_ += page.n_bytes();
  ++last_id_;
  touch(entries_.begin());
  return last_id_;
}

std::vector<PrefixStore::Found> PrefixStore::find(Kind kind, WriterSet writers,
                                                  std::span<const int32_t> ids) {
  std::vector<Found> found;
  if (writers == kOpaqueWriters) return found;
  const std::lock_guard<std::mutex> lock(mutex_);
  PageId before = kRoot;
  constexpr auto kPage = static_cast<size_t>(kKvPagePositions);
  for (size_t first = 0; first + kPage <= ids.size(); first += kPage) {
    const auto known = by_key_.find(key_of(before, kind, writers, ids.subspan(first, kPage)));
    if (known == by_key_.end()) break;
    before = known->second->id;
    found.push_back({before, known->second->page});
  }
  if (!found.empty()) touch(by_id_.find(before)->second);
  return found;
}

}  // namespace engine
