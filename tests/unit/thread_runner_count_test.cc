// default_thread_count: its parsers and the walk over control groups, with planted files.
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <optional>
#include <string>

#include "lib/base/thread_count.h"
#include "lib/base/thread_runner.h"

namespace engine {
namespace {

using Files = std::map<std::string, std::string>;

std::optional<double> quota_with(const Files& files) {
  return cgroup_cpu_quota([&](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return std::nullopt;
    return found->second;
  });
}

}  // namespace

TEST_CASE("thread_runner_count: cpu.max") {
  CHECK(parse_cpu_max("200000 100000\n") == 2.0);
  CHECK(parse_cpu_max("150000 100000") == 1.5);
  CHECK(parse_cpu_max("max 100000\n") == std::nullopt);
  for (const char* text : {"", "\n", "max", "100000", "0 100000", "100000 0", "-1 100000", "1 2 3",
                           "99999999999999999999 1", "x y", " "}) {
    INFO(text);
    CHECK(parse_cpu_max(text) == std::nullopt);
  }
}

TEST_CASE("thread_runner_count: cpu.cfs_quota_us") {
  CHECK(parse_cfs_quota("300000\n", "100000\n") == 3.0);
  CHECK(parse_cfs_quota("-1\n", "100000\n") == std::nullopt);
  CHECK(parse_cfs_quota("", "100000") == std::nullopt);
  CHECK(parse_cfs_quota("100000", "0") == std::nullopt);
}

TEST_CASE("thread_runner_count: /proc/self/cgroup") {
  const CgroupPaths v2 = parse_proc_cgroup("0::/user.slice/a:b\n");
  CHECK(v2.v2 == "/user.slice/a:b");
  CHECK(v2.v1_cpu == std::nullopt);
  const CgroupPaths v1 = parse_proc_cgroup(
      "12:cpuset:/wrong\n11:cpu,cpuacct:/docker/x\n10:cpuacct:/wrong\n1:name=systemd:/s\n0::/u");
  CHECK(v1.v1_cpu == "/docker/x");
  CHECK(v1.v2 == "/u");
  for (const char* text : {"", "\n\n", "0", "0:", "::", "4:cpu"}) {
    INFO(text);
    const CgroupPaths none = parse_proc_cgroup(text);
    CHECK(none.v2 == std::nullopt);
    CHECK(none.v1_cpu == std::nullopt);
  }
}

TEST_CASE("thread_runner_count: version 2, the tightest of a group and its ancestors counts") {
  Files files = {{"/proc/self/cgroup", "0::/a/b\n"},
                 {"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}};
  CHECK(quota_with(files) == std::nullopt);
  files["/sys/fs/cgroup/a/cpu.max"] = "250000 100000\n";
  CHECK(quota_with(files) == 2.5);
  files["/sys/fs/cgroup/a/b/cpu.max"] = "100000 100000\n";
  CHECK(quota_with(files) == 1.0);
  // In a container the path is that of the outside, the limit lies at the root of the mount.
  CHECK(quota_with({{"/proc/self/cgroup", "0::/../outside\n"},
                    {"/sys/fs/cgroup/cpu.max", "400000 100000\n"}}) == 4.0);
  CHECK(quota_with({{"/proc/self/cgroup", "0::/\n"},
                    {"/sys/fs/cgroup/cpu.max", "50000 100000\n"}}) == 0.5);
}

TEST_CASE("thread_runner_count: version 1, under either name of the mount") {
  for (const std::string mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
    Files files = {{"/proc/self/cgroup", "3:cpu,cpuacct:/docker/x\n"},
                   {mount + "/cpu.cfs_quota_us", "300000\n"},
                   {mount + "/cpu.cfs_period_us", "100000\n"}};
    CHECK(quota_with(files) == 3.0);
    files[mount + "/docker/x/cpu.cfs_quota_us"] = "-1\n";
    files[mount + "/docker/x/cpu.cfs_period_us"] = "100000\n";
    CHECK(quota_with(files) == 3.0);
    files[mount + "/docker/cpu.cfs_quota_us"] = "200000\n";
    files[mount + "/docker/cpu.cfs_period_us"] = "100000\n";
    CHECK(quota_with(files) == 2.0);
  }
  CHECK(quota_with({}) == std::nullopt);
}

TEST_CASE("thread_runner_count: quota and affinity together") {
  CHECK(thread_count(8, std::nullopt) == 8);
  CHECK(thread_count(8, 16.0) == 8);
  CHECK(thread_count(8, 2.0) == 2);
  CHECK(thread_count(8, 2.1) == 3);
  CHECK(thread_count(8, 7.9) == 8);
  CHECK(thread_count(8, 0.01) == 1);
  CHECK(thread_count(0, std::nullopt) == 1);
  CHECK(thread_count(0, 0.5) == 1);
  CHECK(default_thread_count() >= 1);
}

}  // namespace engine
