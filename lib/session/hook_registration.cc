// Hashes of registrations. Lists are hashed with their lengths, so that no two read alike.
#include "lib/session/hook_registration.h"

#include <array>

#include "lib/base/hash.h"

namespace engine {
namespace {

class Input {
 public:
  template <class T>
  void value(T value) {
    hash_.add(&value, sizeof(value));
  }
  template <class T>
  void list(const std::vector<T>& values) {
    value(values.size());
    if (!values.empty()) hash_.add(values.data(), values.size() * sizeof(T));
  }
  uint64_t hash() const { return hash_.value().low; }

 private:
  HashStream hash_;
};

WriterSet some_set(uint64_t hash) {
  return hash == kNoWriters || hash == kOpaqueWriters ? WriterSet{1} : hash;
}

}  // namespace

WriterSet registration_hash(const HookSpec& spec, const SiteSelection& sites) {
  Input input;
  input.value(spec.action);
  input.value(sites.site);
  input.list(sites.layers);
  input.value(spec.select);
  input.list(spec.positions);
  input.value(spec.position_begin);
  input.value(spec.position_end);
  input.value(spec.position_step);
  input.list(spec.heads);
  input.value(spec.alpha);
  input.value(spec.low);
  input.value(spec.high);
  input.value(spec.rank);
  input.list(spec.values);
  input.value(spec.records.size());
  for (const CaptureRecord& record : spec.records) {
    input.value(record.position);
    input.value(record.layer);
  }
  return some_set(input.hash());
}

WriterSet add_writer(WriterSet before, WriterSet registration) {
  if (before == kOpaqueWriters || registration == kOpaqueWriters) return kOpaqueWriters;
  const std::array<uint64_t, 2> both{before, registration};
  return some_set(hash64(both.data(), sizeof(both)));
}

}  // namespace engine
