// Binds a plan: checks that it fits, allocates its arena, turns indices into addresses.
#include "lib/session/bound_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/contract/derive.h"

namespace engine {
namespace {

absl::Status misfit(std::string_view what) {
  return error(Code::kPlan, absl::StrCat("the plan does not fit: ", what));
}

// A piece is small enough that threads end together and large enough that its start costs nothing. In the cache
// of a core it leaves room for the activations.
constexpr int64_t kPieceBytes = int64_t{96} << 10;

// Cuts the concatenated rows of a launch's matmuls into pieces of about kPieceBytes, at multiples of `grain`,
// and the pieces into shares of about equal bytes.
void cut_rows(const std::vector<BoundPart>& parts, const std::vector<int32_t>& members,
              uint32_t n_shares, int64_t grain, BoundStep* step) {
  std::vector<int64_t> ends;  // bytes up to the end of each piece
  int64_t total = 0;
  for (const int32_t m : members) {
    const BoundPart& part = parts[static_cast<size_t>(m)];
    const int64_t rows = part.weight->rows, row_bytes = part.weight_row_bytes;
    const int64_t piece =
        n_shares == 1 ? rows : std::max<int64_t>(1, kPieceBytes / (row_bytes * grain)) * grain;
    for (int64_t begin = 0; begin < rows; begin += piece) {
      const int64_t end = std::min(rows, begin + piece);
      step->pieces.push_back({m, begin, end});
      total += (end - begin) * row_bytes;
      ends.push_back(total);
    }
  }
  step->shares.push_back(0);
  for (uint32_t i = 1; i < n_shares; ++i) {
    const int64_t cut = total * i / n_shares;
    const auto at = std::lower_bound(ends.begin(), ends.end(), cut);
    step->shares.push_back(static_cast<uint32_t>(at - ends.begin()));
  }
  step->shares.push_back(static_cast<uint32_t>(ends.size()));
}

class Binder {
 public:
  Binder(const Plan& plan, const Program& program, const PackedWeights& packed,
         const ThreadRunner& runner)
      : plan_(plan),
        program_(program),
        packed_(packed),
        runner_(runner),
        kv_(kv_layout(program.kv, plan.key.kv)) {}

  absl::Status check_key() const {
    if (plan_.key.mode == Mode::kReference) return misfit("it is one of the reference mode");
    if (plan_.key.n_threads != runner_.n_threads()) return misfit("another number of threads");
    if (plan_.kv.page_bytes != kv_.page_bytes) return misfit("another KV layout");
    for (const PlanForm* form : {&plan_.decode, &plan_.prefill}) {
      if (form->layers.size() != program_.layers.size()) return misfit("another number of layers");
      if (form->arena.slot_region.size() != program_.slots.size()) return misfit("other slots");
      for (const Region& r : form->arena.regions) {
        if (r.offset < 0 || r.bytes < 0 || r.offset % 64 != 0 ||
            r.offset + r.bytes > form->arena.bytes) {
          return misfit("a region outside the arena");
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status bind_form(const PlanForm& form, uint8_t* arena, BoundForm* out) {
    form_ = &form;
    arena_ = arena;
    out->n_tokens = form.n_tokens;
    out->n_head_rows = form.n_head_rows;
    out->scratch_bytes = form.arena.thread_scratch_bytes;
    for (const Region& r : form.arena.regions) {
      if (r.slot < 0) out->scratch = arena + r.offset;
    }
    if (out->scratch == nullptr && out->scratch_bytes > 0) return misfit("no thread scratch");
    out->residual = place(program_.residual_slot);
    if (out->residual.base == nullptr) return misfit("the residual has no region");
    ENGINE_RETURN_IF_ERROR(bind_section(form.preamble, program_.preamble, -1, &out->body));
    for (size_t l = 0; l < form.layers.size(); ++l) {
      ENGINE_RETURN_IF_ERROR(bind_section(form.layers[l].steps, program_.layers[l],
                                          static_cast<int32_t>(l), &out->body));
    }
    ENGINE_RETURN_IF_ERROR(
        bind_section(form.final_steps, program_.final_steps, -1, &out->final_steps));
    int32_t index = 0;
    for (BoundStep& step : out->body) step.index = index++;
    for (BoundStep& step : out->final_steps) {
      step.index = index++;
      for (BoundPart& part : step.parts) collect_moving(part, out);
    }
    return absl::OkStatus();
  }

 private:
  // The places of the final steps that move with every call.
  void collect_moving(BoundPart& part, BoundForm* out) const {
    const std::pair<int32_t, Place*> all[] = {
        {part.step->in0, &part.in0}, {part.step->in1, &part.in1}, {part.step->out, &part.out}};
    for (const auto& [slot, at] : all) {
      if (slot == program_.residual_slot) out->residual_rows.push_back(at);
      if (slot == program_.logits_slot) out->logits_rows.push_back(at);
    }
  }

  Place place(int32_t slot) const {
    if (slot < 0) return {};
    const Slot& s = program_.slots[static_cast<size_t>(slot)];
    if (slot == program_.logits_slot) {  // dense, as the caller's array
      return {nullptr, program_.n_vocab * static_cast<int64_t>(sizeof(float)), -1};
    }
    const int32_t region = form_->arena.slot_region[static_cast<size_t>(slot)];
    if (region < 0) return {};
    return {arena_ + form_->arena.regions[static_cast<size_t>(region)].offset, s.row_bytes, -1};
  }

  absl::Status bind_section(const std::vector<PlanStep>& steps, const std::vector<Step>& section,
                            int32_t layer, std::vector<BoundStep>* out) {
    for (const PlanStep& step : steps) {
      BoundStep bound;
      bound.plan = &step;
      bound.layer = layer;
      ENGINE_RETURN_IF_ERROR(bind_parts(step, section, &bound));
      if (step.kind == StepKind::kSingle) {
        bound.run = single_executor(bound.parts[0].step->op);
      } else {
        bound.run = fused_executor(step.kind);
      }
      cut(step, &bound);
      out->push_back(std::move(bound));
    }
    return absl::OkStatus();
  }

  absl::Status bind_parts(const PlanStep& step, const std::vector<Step>& section,
                          BoundStep* bound) {
    const std::span<const KernelRow> rows = kernel_rows();
    if (step.steps.empty() || step.steps.size() != step.kernels.size()) return misfit("a step");
    const SiteMask sites = plan_.key.sites(bound->layer);
    int64_t scratch = 0;
    std::vector<std::pair<int32_t, int64_t>> in_scratch;  // eliminated slots of this step
    for (size_t i = 0; i < step.steps.size(); ++i) {
      if (step.steps[i] < 0 || static_cast<size_t>(step.steps[i]) >= section.size() ||
          step.kernels[i] < 0 || static_cast<size_t>(step.kernels[i]) >= rows.size()) {
        return misfit("an index outside its table");
      }
      BoundPart part;
      part.step = &section[static_cast<size_t>(step.steps[i])];
      part.kernel = step.kernels[i];
      const KernelRow& row = rows[static_cast<size_t>(part.kernel)];
      if (row.key.op != kernel_key(program_, *part.step, plan_.key.kv).op)
        return misfit("a kernel of another operation");
      part.entry = row.entry(plan_.key.target);
      if (part.entry == nullptr) return misfit(absl::StrCat(row.name, " is not available here"));
      if (part.step->weight >= 0) {
        const auto w = static_cast<size_t>(part.step->weight);
        part.weight = &program_.weights[w];
        part.weight_data = part.weight->data;
        part.weight_row_bytes = part.weight->row_bytes;
        part.weight_matrix_bytes = part.weight->rows * part.weight->row_bytes;
        if (row.key.layout == Layout::kRows16) {
          if (w >= packed_.size() || packed_[w].data == nullptr) {
            return misfit(absl::StrCat(part.weight->name, " is not packed"));
          }
          part.weight_data = packed_[w].data;
          part.weight_row_bytes = packed_[w].row_bytes;
          part.weight_matrix_bytes = packed_[w].matrix_bytes;
        }
      }
      if (part.step->rope >= 0) {
        part.rope = &program_.ropes[static_cast<size_t>(part.step->rope)];
      }
      const Op op = row.key.op;
      if (op == Op::kKvStore || op == Op::kAttention || op == Op::kShortConv) {
        const auto source = static_cast<size_t>(program_.kv_layer(bound->layer));
        part.kv = {nullptr, kv_.k_offset_bytes[source], kv_.v_offset_bytes[source]};
        part.geometry = &program_.kv[source];
      }
      part.in0 = place(part.step->in0);
      part.in1 = place(part.step->in1);
      part.out = place(part.step->out);
      if (part.step->out >= 0) {
        part.act = program_.slots[static_cast<size_t>(part.step->out)].type;
      }
      if (step.kind == StepKind::kNormRows) {
        // Values that only live between the parts get a row of scratch each.
        const auto keep = [&](int32_t slot, Place* at) {
          if (slot < 0 || at->base != nullptr) return;
          auto it = std::find_if(in_scratch.begin(), in_scratch.end(),
                                 [&](const auto& entry) { return entry.first == slot; });
          if (it == in_scratch.end()) {
            it = in_scratch.insert(in_scratch.end(), {slot, scratch});
            scratch += program_.slots[static_cast<size_t>(slot)].row_bytes;
          }
          at->scratch_offset = it->second;
        };
        keep(part.step->in0, &part.in0);
        keep(part.step->in1, &part.in1);
        keep(part.step->out, &part.out);
      }
      const auto n = static_cast<int32_t>(i);
      for (const Site site : part.step->fires_before) {
        if ((sites & site_bit(site)) != 0) bound->before.push_back({site, n});
      }
      for (const Site site : part.step->fires_after) {
        if ((sites & site_bit(site)) != 0) bound->after.push_back({site, n});
      }
      bound->parts.push_back(part);
    }
    if (scratch > form_->arena.thread_scratch_bytes) return misfit("too little thread scratch");
    return absl::OkStatus();
  }

  void cut(const PlanStep& step, BoundStep* bound) const {
    std::vector<int32_t> members;
    for (size_t i = 0; i < bound->parts.size(); ++i) {
      const Op op = bound->parts[i].step->op;
      if (op == Op::kMatmul || op == Op::kMoeMatmul) members.push_back(static_cast<int32_t>(i));
    }
    if (members.empty()) return;
    int64_t grain = kRowGrain;
    if (step.kind == StepKind::kGateUp) {
      members.erase(members.begin() + 1, members.end());  // the up projection follows its gate
      const BoundPart& last = bound->parts.back();
      if (last.step->op == Op::kQuantize) {
        const Slot& act = program_.slots[static_cast<size_t>(last.step->out)];
        grain = act.type == ActType::kQ8x256 ? 256 : 32;
      }
    }
    cut_rows(bound->parts, members, step.split == Split::kRows ? runner_.n_threads() : 1, grain,
             bound);
  }

  const Plan& plan_;
  const Program& program_;
  const PackedWeights& packed_;
  const ThreadRunner& runner_;
  const KvLayout kv_;
  const PlanForm* form_ = nullptr;
  uint8_t* arena_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BoundPlan>> BoundPlan::bind(std::shared_ptr<const Plan> plan,
                                                           const Program& program,
                                                           const PackedWeights& packed,
                                                           const ThreadRunner& runner,
                                                           const HostMemory& memory) {
  std::unique_ptr<BoundPlan> bound(new BoundPlan());
  bound->plan_ = std::move(plan);
  const Plan& p = *bound->plan_;
  Binder binder(p, program, packed, runner);
  ENGINE_RETURN_IF_ERROR(binder.check_key());
  const int64_t bytes = std::max(p.decode.arena.bytes, p.prefill.arena.bytes);
  ENGINE_ASSIGN_OR_RETURN(bound->arena_,
                          AlignedBuffer::create(memory, static_cast<uint64_t>(bytes)));
  bound->cursors_ = std::make_unique<PieceCursor[]>(runner.n_threads());
  ENGINE_RETURN_IF_ERROR(binder.bind_form(p.decode, bound->arena_.data(), &bound->decode_));
  ENGINE_RETURN_IF_ERROR(binder.bind_form(p.prefill, bound->arena_.data(), &bound->prefill_));
  return bound;
}

}  // namespace engine
