// Gate A from end to end: the logits of toys of every weight format and family have the recorded signature in every
// mode on every CPU target of this machine, so that machines of different kinds are compared through one file.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/hash.h"
#include "lib/model/arch.h"
#include "tests/unit/session_toy.h"

namespace engine {
namespace {

constexpr const char* kFile = ENGINE_SOURCE_DIR "/tests/golden/signatures.txt";

struct Case {
  std::string name;
  ToyModel spec;
  size_t n_ids = 21;  // a chunk of 16 and a short one
};

Case make_case(const std::string& arch, Format format, const std::string& what = "") {
  const FormatInfo& info = *format_info(format);
  Case c = {arch + " " + std::string(info.name) + (what.empty() ? "" : " " + what),
            toy_of(arch, format)};
  c.spec.n_layer = 2;
  c.spec.n_ff = 96;
  c.spec.random_blocks = true;
  if (info.block_elements == 256) {
    c.spec.n_embd = 256;
    c.spec.n_head = 16;
    c.spec.n_ff = c.spec.n_ff_expert = 256;
    if (arch == "gemma4") {  // rows of 32, and of that for each layer
      c.spec.matrix_formats = {{"per_layer_token_embd", Format::kQ8_0}, {".proj.", Format::kQ8_0}};
    }
  }
  if (find_architecture(arch)->window != WindowRule::kNone) c.spec.window = 8;
  if (arch == "gemma3") {  // a local and a global layer
    c.spec.set_i64 = {{"attention.sliding_window_pattern", 2}};
  }
  return c;
}

void add_formats(const std::string& arch, std::vector<Case>& cases) {
  for (uint32_t id = 0; id < 64; ++id) {
    const FormatInfo* info = format_info(id);
    if (info != nullptr && info->executable) cases.push_back(make_case(arch, info->format));
  }
  Case c = make_case(arch, Format::kQ4_K, "with Q6_K, Q8_0 and an F16 embedding");
  c.spec.matrix_formats = {
      {"attn_v", Format::kQ8_0}, {"ffn_down", Format::kQ6_K}, {"token_embd", Format::kF16}};
  c.spec.vector_type = 1;
  cases.push_back(c);
  c = make_case(arch, Format::kQ8_0, "untied, two pages");
  c.spec.tied = false;
  c.n_ids = kKvPagePositions + 9;
  cases.push_back(c);
  c = make_case(arch, Format::kQ4_0, "odd sizes");
  c.spec.head_dim = 32;
  c.spec.n_head = 6;
  c.spec.n_head_kv = 3;
  c.spec.n_ff = 160;
  c.spec.n_vocab = c.spec.n_tokens = 333;
  cases.push_back(c);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const ArchSpec* arch : architectures()) {
    const std::string name(arch->name);
    if (name == "llama" || name == "gemma3") {
      add_formats(name, cases);
    } else {
      for (const Format format : {Format::kF32, Format::kQ8_0, Format::kQ4_K}) {
        cases.push_back(make_case(name, format));
      }
    }
  }
  Case c = make_case("gpt-oss", Format::kQ8_0, "with experts of MXFP4");
  c.spec.matrix_formats = {{"_exps", Format::kMXFP4}};
  cases.push_back(c);
  c = make_case("llama", Format::kQ5_0, "biases");
  c.spec.biases = true;
  cases.push_back(c);
  c = make_case("llama", Format::kF32, "rope_freqs");
  c.spec.rope_freqs = {1, 1, 1.5f, 2, 4, 8, 8, 8};
  cases.push_back(c);
  c = make_case("llama", Format::kQ8_0, "part of the head rotates");
  c.spec.set_i64 = {{"rope.dimension_count", 8}};
  cases.push_back(c);
  c = make_case("gemma3", Format::kQ4_1, "softcap, linear rope");
  c.spec.set_f32 = {{"final_logit_softcapping", 30.0f}, {"rope.scaling.factor", 8.0f}};
  cases.push_back(c);
  return cases;
}

constexpr std::pair<KvType, const char*> kKvTypes[] = {{KvType::kF16, "f16"},
                                                       {KvType::kF32, "f32"}};

// Every step of a target must have run that target's kernels, or the signature says nothing of it.
void check_kernels_of(const Session& session, Target target) {
  if (target == Target::kScalar) return;
  for (size_t i = 0; i < kernel_rows().size(); ++i) {
    const KernelRow& row = kernel_rows()[i];
    if (row.key.op != Op::kMatmul && row.key.op != Op::kAttention) continue;
    const std::string_view name = row.name;
    const bool other =
        name.ends_with("_scalar") || (target == Target::kAmx && name.ends_with("_rows16"));
    INFO(name);
    CHECK((!other || session.kernel_counts()[i] == 0));
  }
}

std::string hex(uint64_t x) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(x));
  return text;
}

std::string signature_of(const Case& c, const Toy& toy, const Setup& setup) {
  const auto session = make_session(toy, setup);
  std::vector<int32_t> ids = toy_ids(c.n_ids);
  const size_t n_vocab = static_cast<size_t>(session->program().n_vocab);
  std::vector<float> logits(ids.size() * n_vocab);
  const std::vector<int32_t> prompt(ids.begin(), ids.end() - 2);
  REQUIRE(session->decode(prompt, logits.data(), true).ok());
  for (size_t i = prompt.size(); i < ids.size(); ++i) {  // the plan's form for one token
    REQUIRE(session->decode({&ids[i], 1}, &logits[i * n_vocab], true).ok());
  }
  check_kernels_of(*session, setup.target);
  return hex(hash64(logits.data(), logits.size() * 4));
}

Setup setup_of(Mode mode, KvType kv, Target target, bool packed) {
  Setup setup;
  setup.n_ctx = 80;
  setup.chunk = 16;
  setup.mode = mode;
  setup.kv = kv;
  setup.target = target;
  setup.packed = packed;
  setup.threads = mode == Mode::kPlanned ? 3 : 1;
  return setup;
}

std::map<std::string, std::string> read_signatures() {
  std::map<std::string, std::string> out;
  std::ifstream in(kFile);
  for (std::string line; std::getline(in, line);) {
    const size_t space = line.rfind(' ');
    if (line.starts_with('#') || space == std::string::npos) continue;
    out[line.substr(0, space)] = line.substr(space + 1);
  }
  return out;
}

constexpr Mode kModes[] = {Mode::kReference, Mode::kPlanned, Mode::kPlannedFused};
constexpr const char* kAll = "all";  // the name of the signature of all signatures

TEST_CASE("signatures: logits of every format and family are those recorded, on every target") {
  auto recorded = read_signatures();
  const std::string all_recorded = recorded[kAll];
  recorded.erase(kAll);
  std::map<std::pair<Target, Mode>, std::string> all;
  for (const Case& c : all_cases()) {
    const auto toy = make_toy(c.spec);
    for (const auto& [kv, kv_name] : kKvTypes) {
      const std::string name = c.name + ", " + kv_name;
      INFO(name << (recorded.contains(name) ? "" : ": a new toy, [record-signatures] records it"));
      const std::string expected = recorded[name];
      recorded.erase(name);
      for (const Target target : cpu_targets()) {
        for (const Mode mode : kModes) {
          const bool packed = mode != Mode::kPlanned;
          INFO(target_name(target) << ", " << mode_name(mode));
          const std::string signature = signature_of(c, *toy, setup_of(mode, kv, target, packed));
          CHECK(signature == expected);
          all[{target, mode}] += signature;
        }
      }
    }
  }
  for (const auto& [name, signature] : recorded) {
    INFO("recorded, but no longer tested: " << name);
    CHECK(false);
  }
  for (const auto& [key, signatures] : all) {
    const std::string of_all = hex(hash64(signatures.data(), signatures.size()));
    std::printf("signature of %zu toys  %-8s  %-13s  %s\n", signatures.size() / 16,
                std::string(target_name(key.first)).c_str(),
                std::string(mode_name(key.second)).c_str(), of_all.c_str());
    CHECK(of_all == all_recorded);
  }
}

// Run by hand, `unit_tests "[record-signatures]"`, when a toy is added or the numerics change on purpose.
TEST_CASE("record tests/golden/signatures.txt", "[.][record-signatures]") {
  std::ofstream out(kFile);
  out << "# XXH3 of the logit bits of signature_test.cc's toys; equal on every machine, target and "
         "mode.\n"
      << "# Written by: unit_tests \"[record-signatures]\"\n";
  std::string all;
  for (const Case& c : all_cases()) {
    const auto toy = make_toy(c.spec);
    for (const auto& [kv, kv_name] : kKvTypes) {
      const std::string signature =
          signature_of(c, *toy, setup_of(Mode::kReference, kv, Target::kScalar, false));
      out << c.name << ", " << kv_name << " " << signature << "\n";
      all += signature;
    }
  }
  out << kAll << " " << hex(hash64(all.data(), all.size())) << "\n";
  REQUIRE(out.flush().good());
}

}  // namespace
}  // namespace engine
