// How fast a file travels to a daemon on this machine, beside the limits measured in the same run:
// a file written and flushed to the same disk, and its SHA-256 by one core. Run by
// tests/bench/upload_bench.py, which starts the daemon.
//
//   upload_bench SERVER FOLDER MIB [ROUNDS] [PID]    FOLDER is on the daemon's disk, PID the daemon
#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "client/lib/upload.h"
#include "src/base/check.h"
#include "src/base/files.h"
#include "src/base/sha256.h"

namespace trainyard::client {
namespace {

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Of all threads of another process; 0 without one.
double cpu_seconds_of(pid_t pid) {
  clockid_t clock = 0;
  timespec time{};
  if (pid == 0 || ::clock_getcpuclockid(pid, &clock) != 0) return 0;
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// A line: what was done, MB a second, and the CPU seconds of this process and the daemon.
void time(const char* what, const std::string& content, pid_t daemon,
          const std::function<void()>& work) {
  const double cpu = cpu_seconds(), daemon_cpu = cpu_seconds_of(daemon);
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  std::printf("%-16s %7.0f MB/s   %.2f CPU seconds here, %.2f of the daemon\n", what,
              static_cast<double>(content.size()) / wall.count() / 1e6, cpu_seconds() - cpu,
              cpu_seconds_of(daemon) - daemon_cpu);
}

int run(const std::string& server, const std::filesystem::path& folder, size_t mib, int rounds,
        pid_t daemon) {
  Connection connection;
  connection.server = server;
  const Result<std::unique_ptr<Client>> client = Client::connect(connection);
  TRAINYARD_CHECK(client.ok(), client.error().message);
  std::string content(mib << 20, '\0');
  for (size_t i = 0; i < content.size(); ++i) {
    content[i] = static_cast<char>(i * 2654435761u >> 13);
  }
  const std::filesystem::path file = folder / "upload.bin";
  for (int round = 0; round < rounds; ++round) {
    // Content and size are new: neither has been uploaded.
    content[0] = static_cast<char>(content[0] + 1);
    content.push_back('+');
    const std::span<const std::byte> bytes = std::as_bytes(std::span(content));
    time("disk", content, daemon, [&] {
      const Status s = local_files().write_file(file, std::span(&bytes, 1));
      TRAINYARD_CHECK(s.ok(), s.error().message);
    });
    time("sha256", content, daemon, [&] { (void)sha256_hex(content); });
    for (const char* what : {"upload", "the same again"}) {
      time(what, content, daemon, [&] {
        const auto sha256 = upload_file(**client, file, nullptr, {});
        TRAINYARD_CHECK(sha256.ok(), sha256.error().message);
      });
    }
    std::filesystem::remove(file);
  }
  return 0;
}

}  // namespace
}  // namespace trainyard::client

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: upload_bench SERVER FOLDER MIB [ROUNDS] [PID]\n");
    return 2;
  }
  return trainyard::client::run(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10),
                                argc > 4 ? std::atoi(argv[4]) : 3,
                                argc > 5 ? std::atoi(argv[5]) : 0);
}
