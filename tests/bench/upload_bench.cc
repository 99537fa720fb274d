// Measures how fast a file is uploaded to a daemon on this machine, compared with limits measured
// in the same run: a file written and flushed to the same disk, and its SHA-256 by one core. Then
// measures an upload that stops halfway and resumes, and the time of the first page of jobs during
// eight uploads. Run by tests/bench/upload_bench.py, which starts the daemon.
//
//   upload_bench SERVER FOLDER MIB [ROUNDS] [PID]    FOLDER is on the daemon's disk, PID the daemon
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "client/lib/upload.h"
#include "src/base/check.h"
#include "src/base/files.h"
#include "src/base/sha256.h"
#include "tests/bench/process_facts.h"

namespace trainyard::client {
namespace {

/// Returns the CPU seconds of all threads of another process; 0 if there is none.
double cpu_seconds_of(pid_t pid) {
  clockid_t clock = 0;
  timespec time{};
  if (pid == 0 || ::clock_getcpuclockid(pid, &clock) != 0) return 0;
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Prints a line: the operation, MB a second, and the CPU seconds of this process and the daemon.
void time(const char* what, const std::string& content, pid_t daemon,
          const std::function<void()>& work) {
  const double cpu = cpu_seconds(), daemon_cpu = cpu_seconds_of(daemon);
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  std::printf("%-16s %7.0f MB/s   %.2f CPU seconds here, %.2f of the daemon, %.0f ms\n", what,
              static_cast<double>(content.size()) / wall.count() / 1e6, cpu_seconds() - cpu,
              cpu_seconds_of(daemon) - daemon_cpu, 1e3 * wall.count());
}

void write(const std::filesystem::path& file, const std::string& content) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(content));
  const Status s = local_files().write_file(file, std::span(&bytes, 1));
  TRAINYARD_CHECK(s.ok(), s.error().message);
}

/// Lists the first page of jobs until `over` returns true.
void time_list(Client& client, const char* what, const std::function<bool()>& over) {
  v1::ListJobsRequest request;
  request.set_page_size(50);
  std::vector<double> ms;
  while (!over()) {
    const auto start = std::chrono::steady_clock::now();
    const auto page = client.call(rpc::kListJobs, request);
    TRAINYARD_CHECK(page.ok(), page.error().message);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                     .count());
  }
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double share) {
    return ms[static_cast<size_t>(share * static_cast<double>(ms.size() - 1))];
  };
  std::printf("%-24s p50 %.2f ms, p99 %.2f ms of %zu calls\n", what, at(0.5), at(0.99), ms.size());
}

void upload_half(Client& client, const std::filesystem::path& file) {
  std::stop_source stop;
  const auto observer = [&](const UploadProgress& progress) {
    if (progress.sent_bytes >= progress.total_bytes / 2) stop.request_stop();
  };
  TRAINYARD_CHECK(!upload_file(client, file, observer, stop.get_token()).ok(), "it did not stop");
}

/// Uploads eight files of an eighth each at the same time, while this thread lists jobs.
void list_beside_uploads(const Connection& connection, Client& client,
                         const std::filesystem::path& folder, std::string content) {
  const auto begin = std::chrono::steady_clock::now();
  time_list(client, "list alone",
            [&] { return std::chrono::steady_clock::now() - begin > std::chrono::seconds(1); });
  constexpr int kUploads = 8;
  content.resize(content.size() / kUploads);
  for (int i = 0; i < kUploads; ++i) {
    content.push_back(static_cast<char>('a' + i));
    write(folder / ("upload-" + std::to_string(i)), content);
  }
  std::atomic<int> left{kUploads};
  std::vector<std::jthread> uploads;
  for (int i = 0; i < kUploads; ++i) {
    uploads.emplace_back([&, i] {
      const auto own = Client::connect(connection);
      TRAINYARD_CHECK(own.ok(), own.error().message);
      const std::filesystem::path file = folder / ("upload-" + std::to_string(i));
      const auto sha256 = upload_file(**own, file, nullptr, {});
      TRAINYARD_CHECK(sha256.ok(), sha256.error().message);
      std::filesystem::remove(file);
      --left;
    });
  }
  time_list(client, "list beside 8 uploads", [&] { return left == 0; });
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
    // Changes content and size, so that this content has not been uploaded before.
    content[0] = static_cast<char>(content[0] + 1);
    content.push_back('+');
    time("disk", content, daemon, [&] { write(file, content); });
    time("sha256", content, daemon, [&] { (void)sha256_hex(content); });
    for (const char* what : {"upload", "the same again"}) {
      time(what, content, daemon, [&] {
        const auto sha256 = upload_file(**client, file, nullptr, {});
        TRAINYARD_CHECK(sha256.ok(), sha256.error().message);
      });
    }
    content[0] = static_cast<char>(content[0] + 1);
    content.push_back('+');
    write(file, content);
    time("half of one", content, daemon, [&] { upload_half(**client, file); });
    time("the other half", content, daemon, [&] {
      const auto sha256 = upload_file(**client, file, nullptr, {});
      TRAINYARD_CHECK(sha256.ok(), sha256.error().message);
    });
    list_beside_uploads(connection, **client, folder, content);
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
