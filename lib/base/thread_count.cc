// How many threads this process should use: affinity mask and control-group quota.
#include "lib/base/thread_count.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

#include "lib/base/thread_runner.h"

namespace engine {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<int64_t> parse_int(std::string_view text) {
  text = trim(text);
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ratio(std::optional<int64_t> quota, std::optional<int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

bool has_controller(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == name) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// Calls visit(folder) for path, its parent, ... and "" (the root). In a container the path may not
// be visible below the mount, while the root is the container's own group.
template <class Visit>
void for_each_ancestor(std::string path, Visit visit) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  for (;;) {
    visit(path);
    if (path.empty()) return;
    path.resize(std::min(path.rfind('/'), path.size() - 1));
  }
}

std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  if (!a) return b;
  return b ? std::min(*a, *b) : a;
}

#if defined(__linux__)

std::optional<std::string> read_small_file(const std::string& path) {
  constexpr size_t kMaxBytes = 1 << 16;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rbe"), [](std::FILE* f) { return std::fclose(f); });
  if (!file) return std::nullopt;
  std::string text(kMaxBytes, '\0');
  text.resize(std::fread(text.data(), 1, kMaxBytes, file.get()));
  return text;
}

uint32_t affinity_cpus() {
  // The kernel refuses a mask that is shorter than its own: grow until it fits.
  for (size_t n_cpus = 1024; n_cpus <= (size_t{1} << 20); n_cpus *= 2) {
    const size_t n_bytes = CPU_ALLOC_SIZE(n_cpus);
    std::vector<cpu_set_t> mask(n_bytes / sizeof(cpu_set_t) + 1);
    if (sched_getaffinity(0, n_bytes, mask.data()) == 0) {
      return static_cast<uint32_t>(CPU_COUNT_S(n_bytes, mask.data()));
    }
  }
  return std::thread::hardware_concurrency();
}

#endif

}  // namespace

std::optional<double> parse_cpu_max(std::string_view text) {
  text = trim(text);
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  return ratio(parse_int(text.substr(0, space)), parse_int(text.substr(space + 1)));
}

std::optional<double> parse_cfs_quota(std::string_view quota_us, std::string_view period_us) {
  return ratio(parse_int(quota_us), parse_int(period_us));
}

CgroupPaths parse_proc_cgroup(std::string_view text) {
  CgroupPaths paths;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    // HIERARCHY:CONTROLLERS:PATH; the path may hold colons.
    const size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (line.substr(0, first) == "0" && controllers.empty()) {
      paths.v2 = std::string(path);
    } else if (has_controller(controllers, "cpu")) {
      paths.v1_cpu = std::string(path);
    }
  }
  return paths;
}

std::optional<double> cgroup_cpu_quota(const ReadFile& read_file) {
  const std::optional<std::string> membership = read_file("/proc/self/cgroup");
  if (!membership) return std::nullopt;
  const CgroupPaths paths = parse_proc_cgroup(*membership);
  std::optional<double> quota;
  if (paths.v2) {
    for_each_ancestor(*paths.v2, [&](const std::string& folder) {
      if (const auto text = read_file("/sys/fs/cgroup" + folder + "/cpu.max")) {
        quota = smaller(quota, parse_cpu_max(*text));
      }
    });
  }
  if (paths.v1_cpu) {
    for (const char* const mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
      for_each_ancestor(*paths.v1_cpu, [&](const std::string& folder) {
        const auto quota_us = read_file(mount + folder + "/cpu.cfs_quota_us");
        const auto period_us = read_file(mount + folder + "/cpu.cfs_period_us");
        if (quota_us && period_us) quota = smaller(quota, parse_cfs_quota(*quota_us, *period_us));
      });
    }
  }
  return quota;
}

uint32_t thread_count(uint32_t n_affinity_cpus, std::optional<double> quota_cpus) {
  const uint32_t n_cpus = std::max(n_affinity_cpus, 1u);
  if (!quota_cpus || !(*quota_cpus < n_cpus)) return n_cpus;
  return std::max(static_cast<uint32_t>(std::ceil(*quota_cpus)), 1u);
}

uint32_t default_thread_count() {
#if defined(__linux__)
  return thread_count(affinity_cpus(), cgroup_cpu_quota(read_small_file));
#else
  return thread_count(std::thread::hardware_concurrency(), std::nullopt);
#endif
}

}  // namespace engine
