// engine.h, batch: several sessions in one call.
#include <cstddef>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "lib/api/session_handle.h"
#include "lib/session/batch.h"

using engine::Code;

namespace {

// The items of the caller, whose structs may be smaller or larger than ours.
class CallerItems {
 public:
  CallerItems(engine_batch_item* items, uint64_t n)
      : bytes_(reinterpret_cast<unsigned char*>(items)), n_(n), stride_(items->struct_size) {}
  uint64_t size() const { return n_; }
  engine_batch_item* at(uint64_t i) const {
    return reinterpret_cast<engine_batch_item*>(bytes_ + i * stride_);
  }
  absl::Status check() const {
    for (uint64_t i = 0; i < n_; ++i) {
      if (at(i)->struct_size != stride_) {
        return engine::error(Code::kArgument, "the items differ in struct_size");
      }
    }
    return absl::OkStatus();
  }

 private:
  unsigned char* bytes_;
  uint64_t n_, stride_;
};

absl::Status read_item(const engine_batch_item* from, engine::BatchItem* to) {
  engine_batch_item item = ENGINE_BATCH_ITEM_INIT;
  ENGINE_RETURN_IF_ERROR(engine::api::read_struct(from, sizeof(engine_batch_item), &item));
  if ((item.flags & ~uint32_t{ENGINE_BATCH_ALL_LOGITS}) != 0) {
    return engine::error(Code::kTooNew, "unknown bits in flags");
  }
  const bool all = (item.flags & ENGINE_BATCH_ALL_LOGITS) != 0;
  if (all && item.wanted != nullptr) {
    return engine::error(Code::kArgument, "wanted and ENGINE_BATCH_ALL_LOGITS exclude each other");
  }
  if (item.session == nullptr) return engine::error(Code::kArgument, "the session is NULL");
  if (item.ids == nullptr) return engine::error(Code::kArgument, "the ids are NULL");
  if (item.logits == nullptr && (all || item.wanted != nullptr)) {
    return engine::error(Code::kArgument, "the logits are NULL");
  }
  to->session = item.session->session.get();
  to->ids = {item.ids, item.n_ids};
  to->logits = {item.logits, all, item.wanted};
  return absl::OkStatus();
}

}  // namespace

extern "C" {

int32_t engine_batch_decode(engine_batch_item* items, uint64_t n_items, engine_error* error) {
  return engine::api::guard(error, [&]() -> absl::Status {
    if (items == nullptr) return engine::error(Code::kArgument, "the items are NULL");
    if (n_items == 0 || n_items > 65536) {
      return engine::error(Code::kArgument, "n_items is not in 1 .. 65536");
    }
    const CallerItems caller(items, n_items);
    ENGINE_RETURN_IF_ERROR(caller.check());
    absl::InlinedVector<engine::BatchItem, 16> batch(n_items);
    absl::InlinedVector<absl::Status, 16> refused(n_items);
    for (uint64_t i = 0; i < n_items; ++i) refused[i] = read_item(caller.at(i), &batch[i]);
    const auto plans =
        [&](const engine::Session& session,
            const engine::PlanKey& key) -> absl::StatusOr<std::shared_ptr<const engine::Plan>> {
      for (uint64_t i = 0; i < n_items; ++i) {
        if (batch[i].session != &session) continue;
        const engine_model& model = *caller.at(i)->session->model;
        return model.plans.get(*model.program, key);
      }
      return engine::error(Code::kInternal, "a session of no item");
    };
    engine::decode_batch({batch.data(), batch.size()}, plans);
    absl::Status first;
    for (uint64_t i = 0; i < n_items; ++i) {
      const absl::Status& status = refused[i].ok() ? batch[i].status : refused[i];
      caller.at(i)->status = static_cast<int32_t>(engine::code_of(status));
      if (first.ok()) first = status;
    }
    return first;
  });
}

}  // extern "C"
