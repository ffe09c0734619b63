// Cuts the text where no piece can reach across, then merges each word with a heap.
#include "lib/text/spm.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/text/byte_map.h"
#include "lib/text/utf8_scan.h"

namespace engine {

namespace {

// 2 Mi bits: a vocabulary of 256 Ki pieces sets a tenth of them.
constexpr uint32_t kJoinBits = 21;

constexpr auto kLater = [](const auto& a, const auto& b) {
  return a.score != b.score ? a.score < b.score : a.left > b.left;
};

// A byte that is no part of a scalar stands alone: it must not take an escaped space with it.
size_t char_bytes(std::string_view text) {
  const Utf8Step step = utf8_step(text);
  return step.valid ? step.n_bytes : 1;
}

uint32_t char_value(std::string_view one_char) {
  uint32_t value = 0;
  std::memcpy(&value, one_char.data(), one_char.size());
  return value;
}

uint64_t join_bit(std::string_view left_char, std::string_view right_char) {
  const uint64_t both = uint64_t{char_value(left_char)} << 32 | char_value(right_char);
  return (both * 0x9E3779B97F4A7C15ULL) >> (64 - kJoinBits);
}

}  // namespace

Spm::Spm(const Vocab& vocab) : vocab_(vocab), joins_((size_t{1} << kJoinBits) / 64) {
  byte_ids_.fill(-1);
  for (int32_t id = vocab.size(); id-- > 0;) {
    if (vocab.type(id) == TokenType::kByte) byte_ids_[byte_piece_value(vocab.piece(id))] = id;
    if (!vocab.is_ordinary(id)) continue;
    std::string_view rest = vocab.piece(id);
    std::string_view previous;
    while (!rest.empty()) {
      const std::string_view one_char = rest.substr(0, char_bytes(rest));
      rest.remove_prefix(one_char.size());
      if (!previous.empty()) {
        const uint64_t bit = join_bit(previous, one_char);
        joins_[bit / 64] |= uint64_t{1} << (bit % 64);
      }
      previous = one_char;
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (byte_ids_[byte] < 0) byte_ids_[byte] = vocab.find_ordinary({&text, 1});
  }
}

bool Spm::may_join(std::string_view left_char, std::string_view right_char) const {
  const uint64_t bit = join_bit(left_char, right_char);
  return (joins_[bit / 64] >> (bit % 64) & 1) != 0;
}

bool Spm::add(int32_t left, Work* work) const {
  if (left < 0) return false;
  const Symbol& symbol = work->symbols[left];
  if (symbol.next < 0) return false;
  const uint32_t n_bytes = symbol.n_bytes + work->symbols[symbol.next].n_bytes;
  const int32_t id = vocab_.find_ordinary({symbol.begin, n_bytes});
  if (id < 0) return false;
  if (vocab_.type(id) == TokenType::kUnused) work->unused_left_bytes[id] = symbol.n_bytes;
  work->heap.push_back({vocab_.score(id), left, n_bytes});
  return true;
}

// Leaves the symbols of the merged word in work->symbols, from index 0 along `next`.
void Spm::merge_word(std::string_view word, Work* work) const {
  std::vector<Symbol>& symbols = work->symbols;
  std::vector<Candidate>& heap = work->heap;
  symbols.clear();
  heap.clear();
  while (!word.empty()) {
    const size_t n_bytes = char_bytes(word);
    const int32_t at = static_cast<int32_t>(symbols.size());
    symbols.push_back({word.data(), static_cast<uint32_t>(n_bytes), at - 1, at + 1});
    word.remove_prefix(n_bytes);
  }
  symbols.back().next = -1;
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) add(i, work);
  std::make_heap(heap.begin(), heap.end(), kLater);
  const auto push = [&](int32_t at) {
    if (add(at, work)) std::push_heap(heap.begin(), heap.end(), kLater);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), kLater);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[best.left];
    if (left.n_bytes == 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (left.n_bytes + right.n_bytes != best.n_bytes) continue;
    left.n_bytes = best.n_bytes;
    right.n_bytes = 0;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    push(left.previous);
    push(best.left);
  }
}

absl::Status Spm::put(std::string_view piece, Work* work, std::vector<int32_t>* ids) const {
  // Parts still to put out, the next one last; an UNUSED piece is replaced by its two parts.
  std::vector<std::string_view> parts{piece};
  while (!parts.empty()) {
    const std::string_view part = parts.back();
    parts.pop_back();
    const int32_t id = vocab_.find_ordinary(part);
    if (id >= 0 && vocab_.type(id) == TokenType::kUnused) {
      const auto made = work->unused_left_bytes.find(id);
      if (made != work->unused_left_bytes.end()) {
        parts.push_back(part.substr(made->second));
        parts.push_back(part.substr(0, made->second));
        continue;
      }
    } else if (id >= 0) {
      ids->push_back(id);
      continue;
    }
    for (char byte : part) {
      const int32_t byte_id = byte_ids_[static_cast<uint8_t>(byte)];
      if (byte_id >= 0) {
        ids->push_back(byte_id);
      } else if (!vocab_.unknown.has_value()) {
        return error(Code::kTokenizer, absl::StrCat("byte ", static_cast<uint8_t>(byte),
                                                    " of the text has no token"));
      } else if (ids->empty() || ids->back() != *vocab_.unknown) {
        ids->push_back(*vocab_.unknown);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Spm::encode(std::string_view text, std::vector<int32_t>* ids) const {
  Work work;
  while (!text.empty()) {
    size_t end = char_bytes(text);
    std::string_view previous = text.substr(0, end);
    while (end < text.size()) {
      const std::string_view next = text.substr(end, char_bytes(text.substr(end)));
      if (!may_join(previous, next)) break;
      previous = next;
      end += next.size();
    }
    merge_word(text.substr(0, end), &work);
    for (int32_t i = 0; i >= 0; i = work.symbols[i].next) {
      const Symbol& symbol = work.symbols[i];
      ENGINE_RETURN_IF_ERROR(put({symbol.begin, symbol.n_bytes}, &work, ids));
    }
    text.remove_prefix(end);
  }
  return absl::OkStatus();
}

}  // namespace engine
