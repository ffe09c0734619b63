// The reference's mixture of experts: each token and each of its experts by itself.
#include <cstring>

#include "lib/contract/derive.h"
#include "lib/session/reference.h"

namespace engine {

absl::Status Reference::moe_route(KernelEntry entry, const Step& step, const Call& call) {
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const MoeRouteArgs args{input_floats(step.in0, call),
                          stride(step.in0),
                          step.width,
                          step.n_used,
                          step.moe,
                          call.n_tokens,
                          out,
                          stride(step.out)};
  entry(&args);
  return absl::OkStatus();
}

absl::Status Reference::moe_matmul(KernelEntry entry, const Step& step, const Call& call) {
  const Weight& w = program_.weights[static_cast<size_t>(step.weight)];
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const ActType type = program_.slots[static_cast<size_t>(step.in0)].type;
  const uint8_t* act = input(step.in0, call);
  const float* route = input_floats(step.in1, call);
  spread(w.rows, call.n_tokens > 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < call.n_tokens; ++t) {
      for (int64_t j = 0; j < step.n_used; ++j) {
        const auto expert = static_cast<int64_t>(route[t * stride(step.in1) + step.n_used + j]);
        MatmulArgs args{};
        args.weights = w.data + expert * w.rows * w.row_bytes;
        args.row_bytes = w.row_bytes;
        args.cols = w.cols;
        args.row_begin = begin;
        args.row_end = end;
        args.act =
            act + t * stride_bytes(step.in0) + (step.own_rows ? j * act_bytes(type, w.cols) : 0);
        args.n_tokens = 1;
        args.out = out + t * stride(step.out) + j * w.rows;
        entry(&args);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status Reference::moe_bias(KernelEntry entry, const Step& step, const Call& call) {
  const int64_t width = program_.weights[static_cast<size_t>(step.weight)].cols;
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const float* route = input_floats(step.in1, call);
  for (int64_t t = 0; t < call.n_tokens; ++t) {
    for (int64_t j = 0; j < step.n_used; ++j) {
      const auto expert = static_cast<int64_t>(route[t * stride(step.in1) + step.n_used + j]);
      float* x = out + t * stride(step.out) + j * width;
      const AddArgs args{x, 0, weight_floats(step.weight) + expert * width, 0, width, 1, x, 0};
      entry(&args);
    }
  }
  return absl::OkStatus();
}

absl::Status Reference::moe_combine(KernelEntry entry, const Step& step, const Call& call) {
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const float* parts = input_floats(step.in0, call);
  const float* route = input_floats(step.in1, call);
  for (int64_t t = 0; t < call.n_tokens; ++t) {
    float* sum = out + t * stride(step.out);
    std::memset(sum, 0, static_cast<size_t>(step.width) * sizeof(float));
    for (int64_t j = 0; j < step.n_used; ++j) {
      const float* part = parts + t * stride(step.in0) + j * step.width;
      const float weight = route[t * stride(step.in1) + j];
      const AddArgs args{sum, 0, part, 0, step.width, 1, sum, 0, weight};
      entry(&args);
    }
  }
  return absl::OkStatus();
}

}  // namespace engine
