/* machine: what this computer is and what it could do at best: read bandwidth, VNNI and AMX rates, as JSON. */
#define _GNU_SOURCE

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/read_bandwidth.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

static const char kUsage[] =
    "machine [options]: what this computer is and what it could do at best, as one JSON object\n"
    "\n"
    "  --threads N        also with 2, 4, ... and N threads (default: the cores that may be used)\n"
    "  --bandwidth-only   the read bandwidth with N threads and nothing else\n"
    "\n"
    "read_bandwidth_gb_s  best plain read of 512 MiB in huge pages: one and two streams per core,\n"
    "                     prefetch to L2, by threads; 10^9 bytes a second\n"
    "vnni_gmac_s          8-bit multiply-adds a second, 10^9; null where the CPU has no "
    "AVX-512-VNNI\n"
    "amx_int8_gmac_s      the same with tiles of 16x16x64; null where there is no AMX\n"
    "quota_cores          of the control group, in cores; null = none\n"
    "\n"
    "Example: machine --threads 2\n";

/* ---- compute peaks: registers only, as many independent chains as hide the latency ------------------- */

#define PEAK_ROUNDS 9
#define VNNI_TURNS 4000000
#define VNNI_CHAINS 16
#define TILE_TURNS 3000000

#if defined(__x86_64__)
/* Assembly, because compilers keep an array of accumulators in memory and then measure the cache. */
#define DOT(n) "vpdpbusd %%zmm30, %%zmm31, %%zmm" #n "\n\t"
static double vnni_seconds(void) {
  uint64_t turns = VNNI_TURNS;
  const double start = cli_seconds();
  __asm__ volatile("1:\n\t" DOT(0) DOT(1) DOT(2) DOT(3) DOT(4) DOT(5) DOT(6) DOT(7) DOT(8) DOT(9)
                       DOT(10) DOT(11) DOT(12) DOT(13) DOT(14)
                           DOT(15) "dec %0\n\tjnz 1b\n\tvzeroupper"
                   : "+r"(turns)
                   :
                   : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                     "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  return cli_seconds() - start;
}

typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t column_bytes[16];
  uint8_t rows[16];
} tile_config;

static double tile_seconds(void) {
  tile_config config;
  uint64_t turns = TILE_TURNS;
  memset(&config, 0, sizeof(config));
  config.palette = 1;
  for (int i = 0; i < 8; ++i) {
    config.column_bytes[i] = 64;
    config.rows[i] = 16;
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
  const double start = cli_seconds();
  __asm__ volatile(
      "1:\n\ttdpbssd %%tmm6, %%tmm4, %%tmm0\n\ttdpbssd %%tmm7, %%tmm4, %%tmm1\n\t"
      "tdpbssd %%tmm6, %%tmm5, %%tmm2\n\ttdpbssd %%tmm7, %%tmm5, %%tmm3\n\tdec %0\n\tjnz 1b"
      : "+r"(turns)
      :
      : "cc");
  const double seconds = cli_seconds() - start;
  __asm__ volatile("tilerelease");
  return seconds;
}

static int has_vnni(void) {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512f");
}

/* The kernel grants the tile registers to a process that asks. */
static int has_amx(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 24 & 1) || !(d >> 25 & 1)) return 0;
  return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */) == 0;
}
#else
static double vnni_seconds(void) { return 0; }
static double tile_seconds(void) { return 0; }
static int has_vnni(void) { return 0; }
static int has_amx(void) { return 0; }
#endif

typedef struct peak {
  double (*seconds)(void);
  pthread_barrier_t barrier;
  double slowest[PEAK_ROUNDS];
  pthread_mutex_t mutex;
} peak;

static void *run_peak(void *argument) {
  peak *shared = argument;
  for (int round = 0; round < PEAK_ROUNDS; ++round) {
    pthread_barrier_wait(&shared->barrier);
    const double seconds = shared->seconds();
    pthread_mutex_lock(&shared->mutex);
    if (seconds > shared->slowest[round]) shared->slowest[round] = seconds;
    pthread_mutex_unlock(&shared->mutex);
  }
  return NULL;
}

/* Multiply-adds a second of n threads at once, 10^9; 0 where the threads are not to be had. */
static double peak_gmac_s(double (*seconds)(void), double macs, uint32_t n_threads) {
  peak shared;
  memset(&shared, 0, sizeof(shared));
  shared.seconds = seconds;
  if (pthread_barrier_init(&shared.barrier, NULL, n_threads) != 0) return 0;
  pthread_mutex_init(&shared.mutex, NULL);
  pthread_t *threads = cli_allocate(n_threads * sizeof(pthread_t));
  for (uint32_t i = 1; i < n_threads; ++i) {
    if (pthread_create(&threads[i], NULL, run_peak, &shared) != 0) {
      cli_message("cannot start %" PRIu32 " threads", n_threads);
      exit(CLI_FAILED);
    }
  }
  run_peak(&shared);
  for (uint32_t i = 1; i < n_threads; ++i) pthread_join(threads[i], NULL);
  free(threads);
  double best = 0;
  for (int round = 0; round < PEAK_ROUNDS; ++round) {
    const double rate = macs * n_threads / shared.slowest[round] * 1e-9;
    if (rate > best) best = rate;
  }
  return best;
}

/* ---- what the computer says of itself --------------------------------------------------------------- */

/* The first line of a file, "" where it cannot be read. */
static const char *first_line(const char *path, char *line, int capacity) {
  FILE *file = fopen(path, "r");
  line[0] = '\0';
  if (!file) return line;
  if (!fgets(line, capacity, file)) line[0] = '\0';
  fclose(file);
  line[strcspn(line, "\n")] = '\0';
  return line;
}

static void print_text(const char *name, const char *text) {
  printf(", \"%s\": ", name);
  if (text[0]) {
    cli_print_json_text(text, strlen(text));
  } else {
    fputs("null", stdout);
  }
}

static void print_cpu_model(void) {
  char line[512], model[512] = "";
  FILE *file = fopen("/proc/cpuinfo", "r");
  unsigned family = 0, number = 0, stepping = 0;
  while (file && fgets(line, sizeof(line), file) && line[0] != '\n') {
    line[strcspn(line, "\n")] = '\0';
    const char *value = strchr(line, ':');
    if (!value) continue;
    if (strncmp(line, "model name", 10) == 0) strcpy(model, value + 2);
    sscanf(line, "cpu family : %u", &family);
    if (strncmp(line, "model\t", 6) == 0) number = (unsigned)atoi(value + 1);
    if (strncmp(line, "stepping", 8) == 0) stepping = (unsigned)atoi(value + 1);
  }
  if (file) fclose(file);
  fputs("{\"cpu\": ", stdout);
  cli_print_json_text(model, strlen(model));
  printf(", \"cpu_family\": %u, \"cpu_model\": %u, \"cpu_stepping\": %u", family, number, stepping);
}

/* The quota of the control group that this process is in, either generation; 0 = none. */
static double quota_cores(void) {
  char line[512], path[600];
  double quota = 0, period = 0, best = 0;
  FILE *file = fopen("/proc/self/cgroup", "r");
  while (file && fgets(line, sizeof(line), file)) {
    line[strcspn(line, "\n")] = '\0';
    const char *group = strrchr(line, ':');
    if (!group) continue;
    static const char *const kRoots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu"};
    for (int i = 0; i < 4; ++i) { /* its own folder, or the mount of a container */
      char text[64];
      const char *sub = i < 2 ? group + 1 : "";
      snprintf(path, sizeof(path), "%s%s/%s", kRoots[i % 2], sub,
               i % 2 ? "cpu.cfs_quota_us" : "cpu.max");
      first_line(path, text, sizeof(text));
      period = 0;
      if (i % 2 == 0 && sscanf(text, "%lf %lf", &quota, &period) != 2) continue;
      if (i % 2 == 1) {
        if (sscanf(text, "%lf", &quota) != 1 || quota <= 0) continue;
        snprintf(path, sizeof(path), "%s%s/cpu.cfs_period_us", kRoots[1], sub);
        if (sscanf(first_line(path, text, sizeof(text)), "%lf", &period) != 1) continue;
      }
      if (period > 0 && (best == 0 || quota / period < best)) best = quota / period;
    }
  }
  if (file) fclose(file);
  return best;
}

static uint32_t allowed_cores(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

/* 1, 2, 4, ... below n, and n. */
static uint32_t next_count(uint32_t count, uint32_t n) { return count * 2 < n ? count * 2 : n; }

static void print_peaks(const char *name, int present, double (*seconds)(void), double macs,
                        uint32_t n_threads) {
  printf(", \"%s\": ", name);
  if (!present) {
    fputs("null", stdout);
    return;
  }
  for (uint32_t t = 1;; t = next_count(t, n_threads)) {
    printf("%s\"%" PRIu32 "\": %.1f", t == 1 ? "{" : ", ", t, peak_gmac_s(seconds, macs, t));
    if (t == n_threads) break;
  }
  putchar('}');
}

static void print_bandwidth(uint32_t first, uint32_t n_threads) {
  fputs("\"read_bandwidth_gb_s\": {", stdout);
  for (uint32_t t = first;; t = next_count(t, n_threads)) {
    printf("%s\"%" PRIu32 "\": %.3f", t == first ? "" : ", ", t, read_bandwidth_gb_s(t));
    if (t == n_threads) break;
  }
  putchar('}');
}

int main(int argc, char **argv) {
  uint32_t n_threads = 0;
  int bandwidth_only = 0;
  cli_program = "machine";
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      fputs(kUsage, stdout);
      return CLI_OK;
    }
    if (strcmp(argv[i], "--bandwidth-only") == 0) {
      bandwidth_only = 1;
    } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      const int n = atoi(argv[++i]);
      if (n < 1 || n > 1024) cli_usage_error("'%s' is not a value for --threads", argv[i]);
      n_threads = (uint32_t)n;
    } else {
      cli_usage_error("unknown option '%s'", argv[i]);
    }
  }
  const uint32_t allowed = allowed_cores();
  if (n_threads == 0) n_threads = allowed;
  if (bandwidth_only) {
    putchar('{');
    print_bandwidth(n_threads, n_threads);
    puts("}");
    return 0;
  }
  char text[512];
  print_cpu_model();
  printf(", \"cores_online\": %ld, \"cores_allowed\": %" PRIu32, sysconf(_SC_NPROCESSORS_ONLN),
         allowed);
  const double quota = quota_cores();
  snprintf(text, sizeof(text), "%.2f", quota);
  printf(", \"quota_cores\": %s", quota > 0 ? text : "null");
  printf(", \"memory_bytes\": %" PRIu64,
         (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
  print_text("governor", first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text,
                                    sizeof(text)));
  print_text("huge_pages",
             first_line("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text)));
  print_text("kernel", first_line("/proc/sys/kernel/osrelease", text, sizeof(text)));
  fputs(", ", stdout);
  print_bandwidth(1, n_threads);
  const double vnni_macs = (double)VNNI_TURNS * VNNI_CHAINS * 64;
  const double tile_macs = (double)TILE_TURNS * 4 * 16 * 16 * 64;
  print_peaks("vnni_gmac_s", has_vnni(), vnni_seconds, vnni_macs, n_threads);
  print_peaks("amx_int8_gmac_s", has_amx(), tile_seconds, tile_macs, n_threads);
  puts("}");
  return 0;
}
