// Groups items that can share launches, fills launches with rows, hands out logits, ends each call by itself.
#include "lib/session/batch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "lib/base/float_state.h"

namespace engine {
namespace {

constexpr size_t kInline = 16;  // items that need no memory of the heap
template <class T>
using Few = absl::InlinedVector<T, kInline>;

// Whether rows of both may be in one launch.
bool can_share(const Session& a, const Session& b) {
  const PlanKey& x = a.plan().key;
  const PlanKey& y = b.plan().key;
  return &a.program() == &b.program() && x.mode == y.mode && x.target == y.target && x.kv == y.kv &&
         x.prefill_chunk == y.prefill_chunk && x.n_threads == y.n_threads &&
         x.fusions == y.fusions && x.packed == y.packed && x.kernel_pattern == y.kernel_pattern;
}

void add_sites(const PlanKey& from, PlanKey* to) {
  to->global_sites |= from.global_sites;
  if (from.layer_sites.empty()) return;
  to->layer_sites.resize(from.layer_sites.size(), 0);
  for (size_t l = 0; l < from.layer_sites.size(); ++l) to->layer_sites[l] |= from.layer_sites[l];
}

}  // namespace

// One item of a group, on its way.
struct BatchMember {
  BatchItem* item;
  SessionCall* call;
  int64_t done = 0;   // ids that have gone through
  float* out;         // for the next wanted row
  int64_t begin = 0;  // of the launch: first id, number of ids, first row
  int64_t n = 0;
  int64_t row = 0;
};

// A group of items that share launches.
class BatchRun {
 public:
  explicit BatchRun(std::span<BatchMember> members) : members_(members) {}

  // Items whose session fails have their status; the others are done when it returns ok. Not ok: no item ran.
  absl::Status run(const PlanSource& plans) {
    ENGINE_RETURN_IF_ERROR(enter(plans));
    struct Leave {
      Interpreter& interpreter;
      ~Leave() { interpreter.leave(); }
    } const leave{*interpreter_};
    while (fill_launch()) {
      run_layers();
      run_heads();
      for (BatchMember& m : members_) m.done += m.n;
    }
    return absl::OkStatus();
  }

 private:
  Session& leader() const { return members_[0].call->session(); }

  // An interpreter whose plan fires the hooks of all, for this call.
  absl::Status enter(const PlanSource& plans) {
    Session& first = leader();
    const bool same_sites = std::all_of(members_.begin(), members_.end(), [&](const auto& m) {
      const PlanKey& key = m.call->session().plan().key;
      return key.layer_sites == first.plan().key.layer_sites &&
             key.global_sites == first.plan().key.global_sites;
    });
    if (same_sites) {
      ENGINE_RETURN_IF_ERROR(first.enter_interpreter());
      interpreter_ = first.interpreter_.get();
      return absl::OkStatus();
    }
    PlanKey key = first.plan().key;
    for (const BatchMember& m : members_) add_sites(m.call->session().plan().key, &key);
    std::shared_ptr<Interpreter>& kept = first.batch_interpreter_;
    if (kept == nullptr || !(kept->plan().key == key) || !kept->try_enter()) {
      ENGINE_ASSIGN_OR_RETURN(auto plan, plans(first, key));
      ENGINE_ASSIGN_OR_RETURN(kept, first.interpreter_->with_plan(std::move(plan)));
      kept->try_enter();
    }
    interpreter_ = kept.get();
    return absl::OkStatus();
  }

  // Gives rows to the members in their order, as many as the plan takes; false when nothing is left.
  bool fill_launch() {
    const int64_t room = interpreter_->plan().key.prefill_chunk;
    int64_t row = 0;
    for (BatchMember& m : members_) {
      m.begin = m.done;
      m.row = row;
      m.n = m.item->status.ok() ? std::min(room - row, m.call->n_ids() - m.done) : 0;
      row += m.n;
    }
    return row > 0;
  }

  void run_layers() {
    Few<SequenceRows> rows;
    for (const BatchMember& m : members_) {
      if (m.n > 0) rows.push_back(m.call->rows(m.begin, m.n, m.row));
      if (m.n > 0) rows.back().profile = nullptr;  // whose labels are of another plan
    }
    interpreter_->run_layers({rows.data(), rows.size()});
    size_t i = 0;
    n_rows_ = 0;
    for (BatchMember& m : members_) {
      n_rows_ += m.n;
      if (m.n > 0) m.item->status = std::move(rows[i++].status);
    }
  }

  // A row of the launch whose logits are wanted.
  struct Head {
    BatchMember* member;
    int64_t row;
    float* to;
  };

  void run_heads() {
    const Plan& plan = interpreter_->plan();
    const auto group = static_cast<size_t>((n_rows_ == 1 ? plan.decode : plan.prefill).n_head_rows);
    Few<Head> heads;
    const auto flush = [&] {
      if (!heads.empty()) run_head(heads);
      heads.clear();
    };
    for (BatchMember& m : members_) {
      for (int64_t i = 0; i < m.n && m.item->status.ok(); ++i) {
        if (!m.item->logits.wants(m.begin + i, m.call->n_ids())) continue;
        if (heads.size() == group || (!heads.empty() && heads.back().row + 1 != m.row + i)) flush();
        if (!m.item->status.ok()) break;
        heads.push_back({&m, m.row + i, m.out});
        m.out += n_vocab();
      }
    }
    flush();
  }

  // Neighbouring rows.
  void run_head(const Few<Head>& heads) {
    bool in_place = true;  // the callers' rows lie as the kernels write them
    Few<SequenceRows> rows;
    Few<BatchMember*> owners;
    for (size_t i = 0; i < heads.size(); ++i) {
      const Head& head = heads[i];
      in_place = in_place && head.to == heads[0].to + static_cast<int64_t>(i) * n_vocab();
      if (i > 0 && heads[i - 1].member == head.member) {
        ++rows.back().n_rows;
        continue;
      }
      const BatchMember& m = *head.member;
      rows.push_back(m.call->rows(m.begin + head.row - m.row, 1, static_cast<int64_t>(i)));
      rows.back().profile = nullptr;
      owners.push_back(head.member);
    }
    float* out = heads[0].to;
    absl::Status status;
    if (!in_place) status = scratch(&out);
    if (status.ok()) {
      interpreter_->run_head({rows.data(), rows.size()}, heads[0].row, out);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      owners[i]->item->status = status.ok() ? std::move(rows[i].status) : status;
    }
    if (in_place || !status.ok()) return;
    for (size_t i = 0; i < heads.size(); ++i) {
      std::memcpy(heads[i].to, out + static_cast<int64_t>(i) * n_vocab(),
                  static_cast<size_t>(n_vocab()) * sizeof(float));
    }
  }

  // Memory of the leader for the logits of a group.
  absl::Status scratch(float** out) {
    AlignedBuffer& buffer = leader().batch_logits_;
    const auto n_bytes =
        static_cast<uint64_t>(interpreter_->plan().prefill.n_head_rows * n_vocab()) * sizeof(float);
    if (buffer.size() < n_bytes) {
      ENGINE_ASSIGN_OR_RETURN(buffer, AlignedBuffer::create(leader().options_.memory, n_bytes));
    }
    *out = buffer.as<float>();
    return absl::OkStatus();
  }

  int64_t n_vocab() const { return leader().program().n_vocab; }

  const std::span<BatchMember> members_;
  Interpreter* interpreter_ = nullptr;
  int64_t n_rows_ = 0;
};

void decode_batch(std::span<BatchItem> items, const PlanSource& plans) {
  const FloatStateGuard guard;
  Few<SessionCall> calls(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].status = items[i].session == nullptr ? error(Code::kArgument, "the session is NULL")
                                                  : calls[i].begin(items[i].session, items[i].ids);
  }
  Few<BatchMember> members;
  Few<bool> is_grouped(items.size(), false);
  for (size_t i = 0; i < items.size(); ++i) {
    if (is_grouped[i] || !items[i].status.ok()) continue;
    if (items[i].session->plan().key.mode == Mode::kReference) {
      items[i].status = calls[i].run(items[i].logits);
      continue;
    }
    members.clear();
    for (size_t j = i; j < items.size(); ++j) {
      if (is_grouped[j] || !items[j].status.ok()) continue;
      if (!can_share(*items[i].session, *items[j].session)) continue;
      is_grouped[j] = true;
      members.push_back({&items[j], &calls[j], 0, items[j].logits.out});
    }
    const absl::Status status = BatchRun({members.data(), members.size()}).run(plans);
    for (BatchMember& m : members) {
      if (!status.ok()) m.item->status = status;
    }
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].status.ok()) calls[i].commit();
  }
}

}  // namespace engine
