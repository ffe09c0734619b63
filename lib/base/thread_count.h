// The parts of default_thread_count that read texts: control-group membership and CPU quotas.
#ifndef ENGINE_LIB_BASE_THREAD_COUNT_H_
#define ENGINE_LIB_BASE_THREAD_COUNT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace engine {

// Linux documentation: admin-guide/cgroup-v2 ("cpu.max"), admin-guide/cgroup-v1 and
// scheduler/sched-bwc ("cpu.cfs_quota_us", "cpu.cfs_period_us"), man 7 cgroups
// (/proc/[pid]/cgroup).

// CPUs that "QUOTA PERIOD" of cpu.max grants; nothing for "max" or a malformed text.
std::optional<double> parse_cpu_max(std::string_view text);

// CPUs that the two files of version 1 grant; nothing for a quota of -1 or a malformed text.
std::optional<double> parse_cfs_quota(std::string_view quota_us, std::string_view period_us);

struct CgroupPaths {
  std::optional<std::string> v2;      // path of the unified hierarchy, such as "/a/b"
  std::optional<std::string> v1_cpu;  // path in the hierarchy of the controller "cpu"
};
// Of the text of /proc/self/cgroup.
CgroupPaths parse_proc_cgroup(std::string_view text);

// The text of a file, nothing when it cannot be read.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

// The smallest quota, in CPUs, of this process's control groups and their ancestors; nothing when
// there is no limit.
std::optional<double> cgroup_cpu_quota(const ReadFile& read_file);

// A part of a CPU counts as one; at least 1.
uint32_t thread_count(uint32_t n_affinity_cpus, std::optional<double> quota_cpus);

}  // namespace engine

#endif  // ENGINE_LIB_BASE_THREAD_COUNT_H_
