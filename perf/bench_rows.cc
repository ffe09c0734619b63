// Times every matmul row of the kernel table against a plain read of the same bytes in the same run.
//
//   bench_rows [--row GLOB] [--shape ROWSxCOLS,...] [--tokens N,...] [--threads N,...] [--target NAME]
//              [--cache in|out|both] [--runs N] [--seconds OF_A_RUN] [--json]
//
// Out of cache: the weights are copies of one matrix in 512 MB or more of huge pages, and a run goes on to the
// next copy. In cache: each thread repeats a few strips of 256 KB or less. Runs of the kernel and of the plain
// read alternate (A B A B ...), and medians and bests are printed. --json: one line a measurement.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lib/quant/pack.h"
#include "lib/quant/quant_ref.h"
#include "tests/kernels/matmul_data.h"

namespace engine {
namespace {

constexpr int64_t kArenaBytes = int64_t{576} << 20;
constexpr int64_t kRotateBytes = int64_t{512} << 20;
constexpr int64_t kInCacheBytes = 256 << 10;

struct Shape {
  int64_t rows, cols;
};

struct Options {
  std::string row = "matmul_*";
  std::vector<Shape> shapes = {{2048, 2048}, {8192, 2048}, {2048, 8192}, {128256, 2048}};
  std::vector<int64_t> tokens = {1, 4, 8, 16, 64, 128, 512};
  std::vector<int64_t> threads = {1, 2};
  std::string target;
  bool in_cache = true;
  bool out_of_cache = true;
  int runs = 5;
  double run_seconds = 0.04;
  bool json = false;
};

// Runs fn(0) .. fn(n - 1) at once; the workers spin, so that a start costs less than a microsecond.
class Threads {
 public:
  explicit Threads(int n) {
    for (int i = 1; i < n; ++i) workers_.emplace_back([this, i] { work(i); });
  }
  ~Threads() {
    quit_ = true;
    ++epoch_;
    for (std::thread& worker : workers_) worker.join();
  }
  void run(const std::function<void(int)>& fn) {
    fn_ = &fn;
    done_ = 0;
    ++epoch_;
    fn(0);
    while (done_.load() != static_cast<int>(workers_.size())) {
    }
  }

 private:
  void work(int index) {
    int seen = 0;
    while (true) {
      while (epoch_.load() == seen) {
      }
      ++seen;
      if (quit_) return;
      (*fn_)(index);
      ++done_;
    }
  }
  std::vector<std::thread> workers_;
  std::atomic<int> epoch_{0}, done_{0};
  std::atomic<bool> quit_{false};
  const std::function<void(int)>* fn_ = nullptr;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// The plain reads: one stream, without and with prefetch into the second-level cache, and two streams.
uint64_t read_stream(const uint8_t* p, int64_t bytes, bool prefetch) {
  uint64_t s[8] = {};
  for (int64_t i = 0; i + 256 <= bytes; i += 256) {
    if (prefetch) {
      for (int c = 0; c < 4; ++c) __builtin_prefetch(p + i + 3072 + 64 * c, 0, 2);
    }
    for (int c = 0; c < 32; c += 8) {
      for (int k = 0; k < 8; ++k) {
        uint64_t v;
        std::memcpy(&v, p + i + 8 * (c + k), 8);
        s[k] ^= v;
      }
    }
  }
  return s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7];
}

std::atomic<uint64_t> g_sink{0};

void read_bytes(const uint8_t* p, int64_t bytes, int variant) {
  uint64_t s = 0;
  if (variant < 2) {
    s = read_stream(p, bytes, variant == 1);
  } else {
    const int64_t half = bytes / 2 / 4096 * 4096;
    for (int64_t i = 0; i < half; i += 4096) {
      s ^= read_stream(p + i, 4096, true) ^ read_stream(p + half + i, 4096, true);
    }
  }
  g_sink += s;
}

struct Result {
  double seconds;       // per matrix, median
  double read_seconds;  // of the same bytes
  double best_seconds;  // least
  double best_read_seconds;
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    arena_ = static_cast<uint8_t*>(mmap(nullptr, kArenaBytes + (2 << 20), PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (arena_ == MAP_FAILED) std::exit(1);
    arena_ += (2 << 20) - reinterpret_cast<uintptr_t>(arena_) % (2 << 20);
    madvise(arena_, kArenaBytes, MADV_HUGEPAGE);
  }

  void run(const KernelRow& row, Target target, KernelEntry entry) {
    for (const Shape& shape : options_.shapes) {
      if (!fill(row, shape)) continue;
      for (const int64_t n_threads : options_.threads) {
        Threads threads(static_cast<int>(n_threads));
        for (const bool cached : {false, true}) {
          if (cached ? !options_.in_cache : !options_.out_of_cache) continue;
          for (const int64_t n : options_.tokens) {
            const Result result = measure(entry, shape, n, threads, n_threads, cached);
            print(row, target, shape, n, n_threads, cached, result);
          }
        }
      }
    }
  }

 private:
  // Copies of one matrix of random weights, and activations.
  bool fill(const KernelRow& row, const Shape& shape) {
    const FormatInfo& info = *format_info(row.key.format);
    if (shape.cols % info.block_elements != 0) return false;
    row_bytes_ = shape.cols / info.block_elements * info.block_bytes;
    matrix_bytes_ = (shape.rows + 15) / 16 * 16 * row_bytes_;
    copies_ = std::max<int64_t>(1, kRotateBytes / matrix_bytes_);
    if (copies_ * matrix_bytes_ > kArenaBytes) return false;
    test::Rng rng(5);
    std::vector<uint8_t> stored(static_cast<size_t>(16 * row_bytes_));
    test::fill_weights(row.key.format, 16, shape.cols, rng, test::Range::kModerate, stored.data());
    if (row.key.layout == Layout::kRows16) {
      pack_rows(row.key.format, stored.data(), row_bytes_, shape.cols, 0, 16, arena_);
    } else {
      std::memcpy(arena_, stored.data(), stored.size());
    }
    const int64_t total = copies_ * matrix_bytes_;
    for (int64_t have = 16 * row_bytes_; have < total; have *= 2) {
      std::memcpy(arena_ + have, arena_, static_cast<size_t>(std::min(have, total - have)));
    }
    const int64_t max_tokens = *std::max_element(options_.tokens.begin(), options_.tokens.end());
    act_stride_ = row.key.act == ActType::kF32     ? shape.cols * 4
                  : row.key.act == ActType::kQ8x32 ? shape.cols / 32 * int64_t{sizeof(ActQ8x32)}
                                                   : shape.cols / 256 * int64_t{sizeof(ActQ8x256)};
    act_stride_ = (act_stride_ + 63) / 64 * 64;
    act_.assign(static_cast<size_t>(max_tokens * act_stride_ + 128), 0);
    std::vector<float> x(static_cast<size_t>(shape.cols));
    for (int64_t t = 0; t < max_tokens; ++t) {
      for (float& v : x) v = test::uniform(rng, -2, 2);
      uint8_t* out = act() + t * act_stride_;
      if (row.key.act == ActType::kF32) {
        std::memcpy(out, x.data(), x.size() * 4);
      } else if (row.key.act == ActType::kQ8x32) {
        quantize_act_q8x32(x.data(), shape.cols, reinterpret_cast<ActQ8x32*>(out));
      } else {
        quantize_act_q8x256(x.data(), shape.cols, reinterpret_cast<ActQ8x256*>(out));
      }
    }
    out_.assign(static_cast<size_t>(max_tokens * shape.rows), 0);
    return true;
  }

  uint8_t* act() {
    const uintptr_t address = reinterpret_cast<uintptr_t>(act_.data());
    return act_.data() + (64 - address % 64) % 64;
  }

  Result measure(KernelEntry entry, const Shape& shape, int64_t n_tokens, Threads& threads,
                 int64_t n_threads, bool cached) {
    // Rows of a thread: its share, in cache as many of them as fit.
    const int64_t share = (shape.rows / n_threads + 15) / 16 * 16;
    const int64_t fit = std::max<int64_t>(16, kInCacheBytes / row_bytes_ / 16 * 16);
    const int64_t rows = cached ? std::min(share, fit) : share;
    int64_t next = 0;
    const auto kernel = [&](int64_t count) {
      const int64_t first = next;
      threads.run([&](int thread) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t begin = thread * share;
          const MatmulArgs args = {
              .weights = arena_ + (cached ? 0 : (first + i) % copies_) * matrix_bytes_,
              .row_bytes = row_bytes_,
              .cols = shape.cols,
              .row_begin = begin,
              .row_end = std::min(begin + rows, shape.rows),
              .act = act(),
              .act_stride_bytes = act_stride_,
              .n_tokens = n_tokens,
              .out = out_.data(),
              .out_stride = shape.rows};
          entry(&args);
        }
      });
      next = cached ? 0 : (first + count) % copies_;
    };
    const auto read = [&](int64_t count, int variant) {
      const int64_t first = next;
      threads.run([&](int thread) {
        for (int64_t i = 0; i < count; ++i) {
          read_bytes(arena_ + (cached ? 0 : (first + i) % copies_) * matrix_bytes_ +
                         thread * share * row_bytes_,
                     rows * row_bytes_, variant);
        }
      });
      next = cached ? 0 : (first + count) % copies_;
    };
    const auto time = [&](const auto& fn, int64_t count) {
      const double start = now();
      fn(count);
      return (now() - start) / static_cast<double>(count);
    };
    const double once = time(kernel, 1);
    const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(options_.run_seconds / once));
    const int64_t read_count = std::max<int64_t>(
        1, static_cast<int64_t>(options_.run_seconds * 20e9) / (rows * row_bytes_));
    int best_variant = 0;
    double best = 1e9;
    for (int i = 0; i < 9; ++i) {
      const int variant = i % 3;
      const double seconds = time([&](int64_t c) { read(c, variant); }, read_count);
      if (seconds < best) best = seconds, best_variant = variant;
    }
    std::vector<double> kernel_seconds, read_seconds;
    for (int i = 0; i < options_.runs; ++i) {
      kernel_seconds.push_back(time(kernel, count));
      read_seconds.push_back(time([&](int64_t c) { read(c, best_variant); }, read_count));
    }
    const double scale = static_cast<double>(shape.rows) / static_cast<double>(rows * n_threads);
    return {median(kernel_seconds) * scale, median(read_seconds) * scale,
            *std::min_element(kernel_seconds.begin(), kernel_seconds.end()) * scale,
            *std::min_element(read_seconds.begin(), read_seconds.end()) * scale};
  }

  void print(const KernelRow& row, Target target, const Shape& shape, int64_t n_tokens,
             int64_t n_threads, bool cached, const Result& result) {
    const double bytes = static_cast<double>(shape.rows * row_bytes_);
    const double gbs = bytes / result.seconds / 1e9;
    const double read_gbs = bytes / result.read_seconds / 1e9;
    const double gmacs =
        static_cast<double>(shape.rows * shape.cols * n_tokens) / result.seconds / 1e9;
    const double best = bytes / result.best_seconds / 1e9;
    const double best_read = bytes / result.best_read_seconds / 1e9;
    const std::string name(target_name(target));
    std::printf(
        options_.json
            ? "{\"row\":\"%s\",\"target\":\"%s\",\"rows\":%lld,\"cols\":%lld,\"tokens\":%lld,"
              "\"threads\":%lld,\"cache\":\"%s\",\"ns\":%.0f,\"gb_s\":%.2f,\"read_gb_s\":%.2f,"
              "\"of_read\":%.3f,\"gmac_s\":%.1f,\"best_gb_s\":%.2f,\"best_read_gb_s\":%.2f}\n"
            : "%-38s %-8s %6lldx%-5lld N=%-4lld T=%lld %-3s %11.0f ns %6.1f GB/s, read %5.1f "
              "(%.2f) %7.1f GMAC/s; best %5.1f, read %5.1f (%.2f)\n",
        row.name, name.c_str(), static_cast<long long>(shape.rows),
        static_cast<long long>(shape.cols), static_cast<long long>(n_tokens),
        static_cast<long long>(n_threads), cached ? "in" : "out", result.seconds * 1e9, gbs,
        read_gbs, gbs / read_gbs, gmacs, best, best_read, best / best_read);
    std::fflush(stdout);
  }

  const Options& options_;
  uint8_t* arena_ = nullptr;
  int64_t row_bytes_ = 0, matrix_bytes_ = 0, copies_ = 0, act_stride_ = 0;
  std::vector<uint8_t> act_;
  std::vector<float> out_;
};

bool matches(const char* pattern, const char* name) {
  if (*pattern == 0) return *name == 0;
  if (*pattern == '*')
    return matches(pattern + 1, name) || (*name != 0 && matches(pattern, name + 1));
  return *pattern == *name && matches(pattern + 1, name + 1);
}

std::vector<int64_t> numbers(const char* text) {
  std::vector<int64_t> out;
  for (char* end = nullptr; *text != 0; text = *end == 0 ? end : end + 1) {
    out.push_back(std::strtoll(text, &end, 10));
    if (end == text) std::exit(2);
  }
  return out;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json") {
      o.json = true;
      continue;
    }
    if (i + 1 >= argc) {
      std::fprintf(stderr, "bench_rows: %s needs a value\n", argv[i]);
      std::exit(2);
    }
    const char* value = argv[++i];
    if (name == "--row") {
      o.row = value;
    } else if (name == "--tokens") {
      o.tokens = numbers(value);
    } else if (name == "--threads") {
      o.threads = numbers(value);
    } else if (name == "--target") {
      o.target = value;
    } else if (name == "--runs") {
      o.runs = std::max(1, std::atoi(value));
    } else if (name == "--seconds") {
      o.run_seconds = std::atof(value);
    } else if (name == "--cache") {
      o.in_cache = std::strcmp(value, "out") != 0;
      o.out_of_cache = std::strcmp(value, "in") != 0;
    } else if (name == "--shape") {
      o.shapes.clear();
      std::string text = value;
      std::replace(text.begin(), text.end(), 'x', ',');
      const std::vector<int64_t> sizes = numbers(text.c_str());
      for (size_t k = 0; k + 1 < sizes.size(); k += 2) o.shapes.push_back({sizes[k], sizes[k + 1]});
    } else {
      std::fprintf(stderr, "bench_rows: unknown option %s\n", name.c_str());
      std::exit(2);
    }
  }
  return o;
}

}  // namespace
}  // namespace engine

int main(int argc, char** argv) {
  using namespace engine;
  const Options options = parse(argc, argv);
  Bench bench(options);
  for (const KernelRow& row : kernel_rows()) {
    if (row.key.op != Op::kMatmul || row.cost >= 100 || !matches(options.row.c_str(), row.name))
      continue;
    for (const Target target : cpu_targets()) {
      if (options.target.empty() ? target != cpu_targets()[0]
                                 : target_name(target) != options.target) {
        continue;
      }
      if (row.entry(target) != nullptr) bench.run(row, target, row.entry(target));
    }
  }
  return 0;
}
