// tests/bench/store_bench.cc: measures durable submits per second, and the share of the disk's
// limit.
//
//   store_bench [DIRECTORY]   on the disk to be measured; default: the current directory
//
// Prints the disk's own limit first (fdatasync of one 4 KiB page after the other), then submits:
// one at a time, and with several in flight; events of a running job; metrics by the number of
// steps in a report; the end of a job on which 10,000 others depend. Everything is acknowledged
// after the commit (synchronous=FULL).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

#include "server/store/sqlite.h"
#include "server/store/store.h"
#include "server/store/wait_for.h"
#include "src/base/handle.h"
#include "tests/bench/process_facts.h"

namespace {

using namespace trainyard;
using namespace trainyard::server;

constexpr int64_t kMeasureUs = 2'000'000;

int64_t now_us() { return system_clock().steady_us(); }

void print(const char* what, std::vector<int64_t>& latencies_us, int64_t elapsed_us) {
  std::sort(latencies_us.begin(), latencies_us.end());
  const size_t n = latencies_us.size();
  std::printf("%-34s %9.0f /s   p50 %6lld us   p99 %6lld us   worst %7lld us\n", what,
              1e6 * static_cast<double>(n) / static_cast<double>(elapsed_us),
              static_cast<long long>(latencies_us[n / 2]),
              static_cast<long long>(latencies_us[n * 99 / 100]),
              static_cast<long long>(latencies_us.back()));
}

void measure_disk(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "fdatasync";
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const std::vector<char> page(4096, 'x');
  std::vector<int64_t> latencies;
  const int64_t begin = now_us();
  for (off_t at = 0; now_us() - begin < kMeasureUs; at += 4096) {
    const int64_t start = now_us();
    if (::pwrite(fd.get(), page.data(), page.size(), at) < 0 || ::fdatasync(fd.get()) != 0) return;
    latencies.push_back(now_us() - start);
  }
  print("fdatasync of 4 KiB", latencies, now_us() - begin);
  std::filesystem::remove(path);
}

// Keeps `in_flight` changes in flight for two seconds.
template <typename Start>
void measure(const char* what, int in_flight, Start start) {
  std::mutex mu;
  std::condition_variable wake;
  int flying = 0;
  bool failed = false;
  std::vector<int64_t> latencies;
  const int64_t begin = now_us();
  while (now_us() - begin < kMeasureUs && !failed) {
    {
      std::unique_lock lock(mu);
      wake.wait(lock, [&] { return flying < in_flight; });
      ++flying;
    }
    start([&, sent = now_us()](const Result<Job>& result) {
      const std::lock_guard lock(mu);
      failed |= !result.ok();
      latencies.push_back(now_us() - sent);
      --flying;
      wake.notify_one();
    });
  }
  std::unique_lock lock(mu);
  wake.wait(lock, [&] { return flying == 0; });
  if (failed) std::printf("%s: refused\n", what);
  print(what, latencies, now_us() - begin);
}

NewJob bench_job() {
  static int64_t count = 0;
  NewJob job;
  job.project = "default";
  job.spec.mutable_dataset()->set_name("projects/default/datasets/digits");
  job.spec.mutable_recipe()->set_epochs(10);
  for (int i = 0; i < 8; ++i)
    (*job.spec.mutable_labels())["label-" + std::to_string(i)] = "a value of the usual size";
  job.request_id = "request-" + std::to_string(++count);
  job.request_digest = std::string(64, 'a');
  return job;
}

/// Sends reports of the loss and the accuracy of `steps` steps each.
void measure_metrics(Store& store, const Job& job, const std::filesystem::path& file, int steps) {
  const auto pages = [&] {
    return std::stoll(
        Connection(file, Connection::Mode::kReadOnly, 1000).query_text("PRAGMA page_count"));
  };
  AttemptUpdate update;
  update.job_uid = job.uid;
  update.attempt = 1;
  v1::MetricBatch& batch = *update.events.emplace_back().mutable_metrics();
  v1::MetricSeries& loss = *batch.add_series();
  v1::MetricSeries& accuracy = *batch.add_series();
  loss.set_key("train/loss");
  accuracy.set_key("train/accuracy");
  for (int i = 0; i < steps; ++i) {
    loss.add_steps(1'000'000 + i);
    loss.add_values(static_cast<double>(std::sin(static_cast<float>(i))));
    accuracy.add_steps(1'000'000 + i);
    accuracy.add_values(i % 50 / 50.0);
  }
  const int64_t pages_before = pages(), begin_us = now_us();
  const double cpu_before = cpu_seconds();
  int64_t reports = 0;
  const std::string what = "metric reports of " + std::to_string(steps) + " steps, 64";
  measure(what.c_str(), 64, [&](Done<Job> done) {
    ++reports;
    store.jobs().update_attempt(update, std::move(done));
  });
  const double seconds = 1e-6 * static_cast<double>(now_us() - begin_us);
  const auto points = static_cast<double>(reports * 2 * steps);
  std::printf("%34s %9.0f points/s, %.0f of a core's second, %.1f bytes a step\n", "",
              points / seconds, points / (cpu_seconds() - cpu_before),
              4096.0 * static_cast<double>(pages() - pages_before) / (points / 2));
}

/// Measures how long the end of a job takes if it also ends `count` jobs that depend on it, and how
/// long submits take meanwhile.
void measure_dependents(Store& store, int count) {
  NewJob asked = bench_job();
  asked.id = "hub";
  const Job hub = store.jobs().submit(asked).value();
  for (int i = 0; i < count; ++i) {
    NewJob waiter = bench_job();
    waiter.after = {{hub.id}};
    if (i + 1 < count && i % 1024 != 0) {
      store.jobs().submit(std::move(waiter), [](const Result<Job>&) {});
    } else {
      (void)store.jobs().submit(std::move(waiter));
    }
  }
  const auto left = std::make_shared<std::atomic<int>>(count);
  store.observe([left](std::span<const JobChange> changes) {
    for (const JobChange& change : changes) {
      if (change.state == JobState::kCancelled) --*left;
    }
  });
  Move failed;
  failed.to = JobState::kFailed;
  const int64_t begin = now_us();
  const double cpu_before = cpu_seconds();
  (void)answer_of(store.jobs(), &JobStore::move, hub.uid, failed);
  const int64_t ended = now_us();
  std::vector<int64_t> latencies;
  while (*left > 0) {
    const int64_t start = now_us();
    (void)store.jobs().submit(bench_job());
    latencies.push_back(now_us() - start);
  }
  const int64_t settled = now_us();
  std::printf(
      "the end of a job on which %d wait: %lld ms, the last is told after %lld ms, %.0f us"
      " of CPU each\n",
      count, static_cast<long long>((ended - begin) / 1000),
      static_cast<long long>((settled - begin) / 1000), 1e6 * (cpu_seconds() - cpu_before) / count);
  if (!latencies.empty()) print("submits meanwhile", latencies, settled - ended);
}

int run(const std::filesystem::path& directory) {
  measure_disk(directory);
  StoreOptions options;
  options.state_dir = directory / "state";
  options.queued_jobs_max = int64_t{1} << 40;
  Result<std::unique_ptr<Store>> opened = Store::open(options);
  if (!opened.ok()) {
    std::printf("%s\n", opened.error().message.c_str());
    return 1;
  }
  Store& store = **opened;
  for (const int in_flight : {1, 16, 128, 1024}) {
    const std::string what = "durable submits, " + std::to_string(in_flight) + " in flight";
    measure(what.c_str(), in_flight,
            [&](Done<Job> done) { store.jobs().submit(bench_job(), std::move(done)); });
  }
  Job job = store.jobs().submit(bench_job()).value();
  job = store.jobs().start_attempt(job.uid, {"devices/cpu"}, "n", "R", "m").value();
  AttemptUpdate update;
  update.job_uid = job.uid;
  update.attempt = 1;
  v1::MetricSeries* series = update.events.emplace_back().mutable_metrics()->add_series();
  series->set_key("train/loss");
  for (int i = 0; i < 10; ++i) {
    series->add_steps(i);
    series->add_values(0.5);
  }
  measure("metric reports of one job, 64", 64,
          [&](Done<Job> done) { store.jobs().update_attempt(update, std::move(done)); });
  for (const int steps : {20, 100, 300, 2500}) {
    measure_metrics(store, job, directory / "state/trainyard.db", steps);
  }
  std::vector<int64_t> latencies;
  const int64_t begin = now_us();
  while (now_us() - begin < kMeasureUs) {
    const int64_t start = now_us();
    if (!store.jobs().find_uid(job.uid).ok()) return 1;
    latencies.push_back(now_us() - start);
  }
  print("reads of a job, one thread", latencies, now_us() - begin);

  measure_dependents(store, 10'000);

  const int64_t count = store.jobs().count().value().queued;
  options.state_dir = directory / "state";
  opened = std::unique_ptr<Store>();  // closes the store
  const int64_t closed = now_us();
  opened = Store::open(options);
  if (!opened.ok()) return 1;
  std::printf("opening with %lld jobs: %lld ms\n", static_cast<long long>(count),
              static_cast<long long>((now_us() - closed) / 1000));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string pattern = std::string(argc > 1 ? argv[1] : ".") + "/store_bench_XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    std::printf("cannot make a directory in %s\n", argc > 1 ? argv[1] : ".");
    return 1;
  }
  const int code = run(pattern);
  std::error_code ignored;
  std::filesystem::remove_all(pattern, ignored);
  return code;
}
