// A sampler as bytes. Fields after magic "engine.r" and version 1 (lib/base/sealed_bytes.h):
//   f32 temperature; i32 top_k; f32 top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
//   i32 penalty_last_n; u64 seed; u64[4] random state;
//   u64 n, i32[n] the tokens of a bounded window, oldest first;
//   u64 m, {i32 id, u32 count}[m] of an unbounded one
#include <cmath>
#include <utility>
#include <vector>

#include "lib/base/sealed_bytes.h"
#include "lib/sample/sampler.h"

namespace engine {
namespace {

constexpr std::string_view kMagic = "engine.r";
constexpr uint32_t kVersion = 1;

absl::Status corrupt() { return error(Code::kCorrupt, "the saved sampler is damaged"); }

// The elements of a list that claims to have n of them; too many give none and a failed reader.
template <class T>
std::vector<T> take_list(SealedReader* in) {
  const auto n = in->value<uint64_t>();
  if (n > in->n_left() / sizeof(T)) {
    in->skip(UINT64_MAX);
    return {};
  }
  std::vector<T> list(n);
  in->take(list.data(), n * sizeof(T));
  return list;
}

}  // namespace

std::vector<uint8_t> Sampler::save() const {
  std::vector<uint8_t> bytes;
  SealedWriter out(kMagic, kVersion, [&](const void* data, uint64_t n) {
    const auto* first = static_cast<const uint8_t*>(data);
    bytes.insert(bytes.end(), first, first + n);
    return absl::OkStatus();
  });
  const SamplerParams& p = params_;
  out.value(p.temperature);
  out.value(p.top_k);
  for (const float v :
       {p.top_p, p.min_p, p.repeat_penalty, p.frequency_penalty, p.presence_penalty}) {
    out.value(v);
  }
  out.value(p.penalty_last_n);
  out.value(p.seed);
  for (const uint64_t word : rng_.state()) out.value(word);
  const std::vector<int32_t> tokens = window_.tokens();
  out.value(static_cast<uint64_t>(tokens.size()));
  out.put(tokens.data(), tokens.size() * sizeof(int32_t));
  const bool is_unbounded = has_penalties_ && p.penalty_last_n < 0;
  const std::vector<TokenWindow::Count> none;
  const auto& counts = is_unbounded ? window_.counts() : none;
  out.value(static_cast<uint64_t>(counts.size()));
  out.put(counts.data(), counts.size() * sizeof(TokenWindow::Count));
  (void)out.seal();
  return bytes;
}

absl::StatusOr<Sampler> Sampler::restore(std::span<const uint8_t> bytes) {
  ENGINE_ASSIGN_OR_RETURN(SealedReader in, SealedReader::open(bytes, kMagic, kVersion));
  SamplerParams p;
  p.temperature = in.value<float>();
  p.top_k = in.value<int32_t>();
  for (float* v :
       {&p.top_p, &p.min_p, &p.repeat_penalty, &p.frequency_penalty, &p.presence_penalty}) {
    *v = in.value<float>();
  }
  p.penalty_last_n = in.value<int32_t>();
  p.seed = in.value<uint64_t>();
  Rng::State state;
  for (uint64_t& word : state) word = in.value<uint64_t>();
  const auto tokens = take_list<int32_t>(&in);
  auto counts = take_list<TokenWindow::Count>(&in);
  if (!in.ok() || in.n_left() != 0) return corrupt();
  absl::StatusOr<Sampler> made = create(p);
  if (!made.ok()) return corrupt();
  for (const int32_t id : tokens) {
    if (id < 0) return corrupt();
    made->accept(id);
  }
  int32_t last = -1;
  for (const TokenWindow::Count& c : counts) {
    if (c.id <= last || c.count == 0) return corrupt();
    last = c.id;
  }
  if (!counts.empty()) {
    if (!made->has_penalties_ || p.penalty_last_n >= 0) return corrupt();
    made->window_.set_counts(std::move(counts));
  }
  made->rng_ = Rng(state);
  return made;
}

}  // namespace engine
