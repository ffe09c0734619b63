// libFuzzer target: any bytes through Gguf::parse in both modes, then every view and typed read.
//
//   clang++ -fsanitize=fuzzer,address,undefined ... && mkdir corpus &&
//   ENGINE_FUZZ_SEEDS=corpus ./fuzz_gguf -runs=0 && ./fuzz_gguf -max_total_time=120 corpus
//
// With ENGINE_FUZZ_SEEDS set, seeds are written to that folder before the run.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "lib/file/gguf.h"
#include "tests/unit/gguf_builder.h"
#include "tests/unit/gguf_touch.h"

namespace {

void write_seed(const std::string& path, const std::vector<uint8_t>& file) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
}

void write_seeds(const std::string& folder) {
  write_seed(folder + "/seed_empty", engine::GgufBuilder().build());
  for (uint32_t alignment : {8u, 32u, 64u}) {
    const auto file = engine::small_good_file(alignment);
    write_seed(folder + "/seed_good_" + std::to_string(alignment), file);
    write_seed(folder + "/seed_cut_" + std::to_string(alignment),
               std::vector<uint8_t>(file.begin(), file.end() - 300));
  }
  engine::GgufBuilder hostile;
  hostile.version = 2;
  hostile.tensor({"t", {1u << 20, (1ull << 42) + 1}, 0, std::vector<uint8_t>(64), {}, {}, {}});
  hostile.value("nested", 9, engine::ByteWriter().put<uint32_t>(9).put<uint64_t>(1).bytes);
  write_seed(folder + "/seed_hostile", hostile.build());
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  if (const char* folder = std::getenv("ENGINE_FUZZ_SEEDS")) write_seeds(folder);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  for (const bool metadata_only : {false, true}) {
    const auto parsed =
        engine::Gguf::parse({data, n_bytes}, engine::test_block_shape, {metadata_only});
    if (parsed.ok()) {
      (void)engine::touch_all(*parsed);
    } else if (engine::code_of(parsed.status()) == engine::Code::kInternal) {
      __builtin_trap();
    }
  }
  return 0;
}
