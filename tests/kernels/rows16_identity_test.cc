// Gate A for packed weights: pack and unpack are inverse, and every row on packed strips gives the bits of the
// scalar row on the stored matrix, on every CPU target of this machine.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>

#include "lib/quant/pack.h"
#include "tests/kernels/matmul_data.h"
#include "tests/kernels/packed_case.h"

namespace engine::test {
namespace {

void check_case(const KernelRow& row, Target target, const PackedCase& c, Rng& rng) {
  const KernelEntry entry = row.entry(target);
  check_packed(row.key.format, c, rng, [&](const MatmulArgs& args) { entry(&args); });
}

std::vector<const KernelRow*> packed_rows() {
  std::vector<const KernelRow*> rows;
  for (const KernelRow& row : kernel_rows()) {
    if (row.key.op == Op::kMatmul && row.key.layout == Layout::kRows16) rows.push_back(&row);
  }
  return rows;
}

}  // namespace

TEST_CASE("unpacking gives the stored bytes back, and packing fills every byte") {
  Rng rng(16);
  int checked = 0;
  for (const Format format : kAllFormats) {
    if (!can_pack(format)) continue;
    ++checked;
    const FormatInfo& info = *format_info(format);
    INFO(std::string(info.name));
    for (const int64_t blocks : {1, 2, 3, 8, 13}) {
      for (const int64_t rows : {1, 15, 16, 17, 48, 61}) {
        const PackedCase c = {rows, blocks * info.block_elements, 0, rows, 1};
        PackedMatrix m(format, c, rng);
        CHECK(packed_bytes(format, rows, c.cols) == (rows + 15) / 16 * 16 * m.row_bytes);
        Bytes back(rows * m.row_bytes);
        unpack_rows(format, m.packed.data(), c.cols, 0, rows, back.data(), m.row_bytes);
        CHECK(std::memcmp(back.data(), m.stored.data(), static_cast<size_t>(rows * m.row_bytes)) ==
              0);
        // Strip by strip into another memory: the same, and nothing behind it is touched.
        Bytes again(packed_bytes(format, rows, c.cols));
        std::memset(again.data(), 0x5A, static_cast<size_t>(packed_bytes(format, rows, c.cols)));
        for (int64_t r = 0; r < rows; r += 16) {
          pack_rows(format, m.stored.data(), m.row_bytes, c.cols, r, std::min(r + 16, rows),
                    again.data());
        }
        CHECK(std::memcmp(again.data(), m.packed.data(),
                          static_cast<size_t>(packed_bytes(format, rows, c.cols)) + 64) == 0);
      }
    }
  }
  CHECK(checked >= 12);
}

TEST_CASE("every row on packed strips equals the scalar row on the stored matrix bit for bit") {
  Rng rng(20261130);
  for (const KernelRow* row : packed_rows()) {
    INFO(row->name);
    const int64_t unit = format_info(row->key.format)->block_elements;
    for (const Target target : cpu_targets()) {
      if (row->entry(target) == nullptr) continue;
      if (is_scalar_row(*row) && target != Target::kScalar) continue;
      INFO("target " << target_name(target));
      const int64_t step = is_scalar_row(*row) ? 5 : 1;
      for (int64_t n = 1; n <= 18; n += step) {  // row tails and all sizes of K
        check_case(*row, target, {16 + n, n * unit, 0, 16 + n, 1 + n % 5}, rng);
      }
      for (int64_t tokens = 1; tokens <= 17; tokens += step) {
        check_case(*row, target, {40, 3 * unit, 16, 40, tokens}, rng);
      }
      for (const int64_t tokens : {33, 64, 128}) {
        if (!is_scalar_row(*row)) check_case(*row, target, {32, 2 * unit, 0, 32, tokens}, rng);
      }
      // Parts of a matrix of an odd and an even number of strips; the rest is left alone.
      for (int64_t strips = 1; strips <= 5; ++strips) {
        const int64_t begin = 16 * (strips % 3);
        check_case(*row, target,
                   {112, 2 * unit, begin, begin + 16 * strips, strips % 2 == 0 ? 1 : 8}, rng);
        check_case(*row, target, {112, 2 * unit, begin, begin + 16 * strips, 1}, rng);
      }
      // More activations than a chunk of tokens holds.
      if (row->key.format == Format::kQ4_K && !is_scalar_row(*row)) {
        check_case(*row, target, {32, 64 * unit, 0, 32, 45}, rng);
      }
    }
  }
}

TEST_CASE("a strip in the wrong place is noticed") {
  Rng rng(3);
  const PackedCase c = {64, 512, 0, 64, 1};
  const KernelKey key = {.op = Op::kMatmul,
                         .format = Format::kQ4_K,
                         .layout = Layout::kRows16,
                         .act = ActType::kQ8x256};
  PackedMatrix m(Format::kQ4_K, c, rng);
  const int64_t stride = act_row_bytes(key.act, c.cols);
  Bytes act(stride);
  fill_act(key.act, c.cols, 1, rng, act.data());
  for (const KernelRow* row : packed_rows()) {
    const Target target = cpu_targets()[0];
    if (!same_key(row->key, key) || row->entry(target) == nullptr) continue;
    const KernelEntry entry = row->entry(target);
    const auto matmul = [&](const MatmulArgs& args) { entry(&args); };
    const auto want = run_packed(matmul, c, m.packed.data(), m.row_bytes, act.data(), stride);
    Bytes swapped(64 * m.row_bytes);
    const int64_t strip = 16 * m.row_bytes;
    for (int64_t s = 0; s < 4; ++s) {
      std::memcpy(swapped.data() + s * strip, m.packed.data() + (s ^ 1) * strip,
                  static_cast<size_t>(strip));
    }
    const auto got = run_packed(matmul, c, swapped.data(), m.row_bytes, act.data(), stride);
    CHECK(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)) != 0);
    for (size_t r = 0; r < 64; ++r) {
      CHECK(std::memcmp(&want[r], &got[r ^ 16], sizeof(float)) == 0);
    }
  }
}

TEST_CASE("every format that can be packed has a scalar row and a vector row on packed strips") {
  for (const Format format : kAllFormats) {
    if (!can_pack(format)) continue;
    const FormatInfo* info = format_info(format);
    INFO(std::string(info->name));
    const KernelKey key = {
        .op = Op::kMatmul, .format = format, .layout = Layout::kRows16, .act = info->act};
    REQUIRE(scalar_row(key) != nullptr);
    for (const Target target : cpu_targets()) {
      if (target == Target::kScalar) continue;
      const auto rows = packed_rows();
      CHECK(std::any_of(rows.begin(), rows.end(), [&](const KernelRow* row) {
        return !is_scalar_row(*row) && same_key(row->key, key) && row->entry(target) != nullptr;
      }));
    }
  }
}

}  // namespace engine::test
