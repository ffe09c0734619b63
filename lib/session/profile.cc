// Recording and reading back of operation times.
#include "lib/session/profile.h"

#include <algorithm>
#include <utility>

#include "lib/contract/derive.h"

namespace engine {

ProfileLabel step_label(const Program& program, const Step& step, KvType kv) {
  ProfileLabel label;
  label.layer = step.layer;
  label.op = op_name(step.op);
  label.weight_bytes = step_weight_bytes(program, step);
  if (step.weight >= 0) label.tensor = program.weights[static_cast<size_t>(step.weight)].name;
  if (step.op == Op::kAttention) {
    const KvGeometry& geometry = program.kv_read(step.layer);
    label.kv_bytes_per_key = geometry.n_kv_heads * (kv_row_bytes(kv, geometry.head_dim_k) +
                                                    kv_row_bytes(kv, geometry.head_dim_v));
    label.window = step.window;
  }
  return label;
}

Profile::Profile(std::vector<ProfileLabel> decode, std::vector<ProfileLabel> prefill, ClockFn clock,
                 void* clock_user)
    : clock_(clock), clock_user_(clock_user) {
  for (size_t f = 0; f < 2; ++f) {
    std::vector<ProfileLabel>& labels = f == 0 ? decode : prefill;
    ProfileLabel call;
    call.op = "call";
    labels.push_back(std::move(call));
    forms_[f].resize(labels.size());
    for (size_t i = 0; i < labels.size(); ++i) forms_[f][i].label = std::move(labels[i]);
  }
}

void Profile::add(Series* series, uint64_t ns) {
  series->samples_ns[series->calls % kSamples] =
      static_cast<uint32_t>(std::min<uint64_t>(ns, UINT32_MAX));
  ++series->calls;
  series->total_ns += ns;
}

uint64_t Profile::record(bool prefill, size_t index, uint64_t start, int64_t first_position,
                         int64_t n_tokens) {
  const uint64_t end = now();
  Series& series = forms_[prefill ? 1 : 0][index];
  add(&series, end - start);
  const ProfileLabel& label = series.label;
  int64_t bytes = label.weight_bytes;
  if (label.kv_bytes_per_key > 0) {
    const int64_t keys = first_position + n_tokens;
    const int64_t seen = label.window > 0 ? label.window + n_tokens - 1 : keys;
    bytes += label.kv_bytes_per_key * std::min(keys, seen);
  }
  series.bytes += static_cast<uint64_t>(bytes);
  return end;
}

void Profile::record_call(bool prefill, uint64_t start) {
  std::vector<Series>& form = forms_[prefill ? 1 : 0];
  add(&form.back(), now() - start);
  form.back().bytes = 0;
  for (size_t i = 0; i + 1 < form.size(); ++i) form.back().bytes += form[i].bytes;
}

size_t Profile::n_lines() const {
  size_t n = 0;
  for (const auto& form : forms_) {
    n += static_cast<size_t>(
        std::count_if(form.begin(), form.end(), [](const Series& s) { return s.calls > 0; }));
  }
  return n;
}

const Profile::Series* Profile::find(size_t index, bool* prefill) const {
  for (size_t f = 0; f < 2; ++f) {
    for (const Series& series : forms_[f]) {
      if (series.calls == 0) continue;
      *prefill = f == 1;
      if (index-- == 0) return &series;
    }
  }
  return nullptr;
}

ProfileLine Profile::line(size_t index) const {
  ProfileLine line;
  const Series* series = find(index, &line.prefill);
  if (series == nullptr) return line;
  line.label = &series->label;
  line.calls = series->calls;
  line.total_ns = series->total_ns;
  line.bytes = series->bytes;
  std::vector<uint32_t> sorted(
      series->samples_ns.begin(),
      series->samples_ns.begin() +
          static_cast<std::ptrdiff_t>(std::min<uint64_t>(series->calls, kSamples)));
  std::sort(sorted.begin(), sorted.end());
  line.median_ns = sorted[(sorted.size() - 1) / 2];
  line.p95_ns = sorted[(sorted.size() - 1) * 95 / 100];
  return line;
}

}  // namespace engine
