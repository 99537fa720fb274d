// tests/server/dispatcher_support.h: a fixture that runs the real dispatcher on its own store, with
// scripted devices and pretended workers (pretend_workers.h), and reads the course of events from
// the store.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/dispatch/dispatcher.h"
#include "server/store/wait_for.h"
#include "tests/server/gibibyte.h"
#include "tests/server/pretend_workers.h"
#include "tests/server/store_support.h"
#include "tests/support/patience.h"

namespace trainyard::server {

/// The resources that a pretended job requests and how long it runs.
struct ScriptedJob {
  std::string id;
  v1::Resources::Device device = v1::Resources::GPU;
  int gpus = 1;
  int64_t bytes = kGiB;
  int64_t ms = 50;
  int32_t priority = 0;
  int threads = 1;
  bool exclusive = false, crash = false;
  double forecast_s = 0;  // 0: the true run time
};

/// One change of one job's state. Moments of all jobs are sorted by time.
struct Moment {
  int64_t time_us = 0;
  int64_t seq = 0;
  std::string id;
  v1::JobState state = v1::QUEUED;
  std::string reason;
  std::vector<std::string> devices;
};

class ServiceDispatcher : public ::testing::Test {
 protected:
  static Device gpu(int number, int64_t gib, std::string model = "H100") {
    Device d;
    d.name = "devices/gpu-" + std::to_string(number);
    d.kind = DeviceKind::kGpu;
    d.model = std::move(model);
    d.uuid = "GPU-" + std::to_string(number);
    d.memory_bytes = gib * kGiB;
    d.overhead_bytes = kGiB / 2;
    d.slots = 4;
    return d;
  }
  static Device cpu() {
    Device d;
    d.name = "devices/cpu";
    d.model = "CPU";
    d.cores = d.slots = 4;
    d.memory_bytes = 16 * kGiB;
    return d;
  }

  void start(std::vector<Device> devices, Policy policy = {},
             std::function<void()> before_reading = {}) {
    devices_ = std::make_unique<ScriptedDevices>(std::move(devices));
    devices_->before_reading(std::move(before_reading));
    ASSERT_TRUE(paths_.create(local_files()).ok());
    workers_ = std::make_unique<PretendWorkers>(*store_, *devices_, paths_);
    SupervisorOptions options;
    options.worker = workers_->program();
    options.socket = paths_.worker_socket();
    options.log_dir = paths_.logs();
    options.stop_grace_ms = 20'000;
    supervisor_ = std::make_unique<Supervisor>(options);
    workers_->start(*supervisor_);
    dispatcher_ = std::make_unique<Dispatcher>(*store_, *supervisor_, *devices_, local_files(),
                                               DispatcherOptions{paths_, 1, false, policy, 20'000});
    dispatcher_->start();
    NewDataset dataset;
    dataset.project = "default";
    dataset.id = "digits";
    dataset.digest = "d1";
    ASSERT_TRUE(store_->datasets().create(dataset).ok());
    ASSERT_TRUE(
        answer_of(store_->datasets(), &DatasetStore::set_ready, "d1", v1::DatasetSchema(), 1).ok());
  }
  void TearDown() override {
    if (dispatcher_) dispatcher_->halt();
    if (supervisor_) supervisor_->kill_all();
    if (supervisor_) supervisor_->wait_idle(std::chrono::milliseconds(patience()).count());
    workers_.reset();
    dispatcher_.reset();
    supervisor_.reset();
  }

  Job submit(const ScriptedJob& ask) {
    NewJob job;
    job.project = "default";
    job.id = ask.id;
    job.owner = "uid:" + std::to_string(ask.id.size());
    job.spec.mutable_dataset()->set_name("projects/default/datasets/digits@1");
    job.spec.set_priority(ask.priority);
    v1::Resources& resources = *job.spec.mutable_resources();
    resources.set_device(ask.device);
    resources.set_threads(ask.threads);
    if (ask.gpus > 1) resources.set_gpus(ask.gpus);
    resources.set_exclusive(ask.exclusive);
    auto& labels = *job.spec.mutable_labels();
    labels["ms"] = std::to_string(ask.ms);
    labels["bytes"] = std::to_string(ask.bytes);
    if (ask.crash) labels["crash"] = "1";
    job.plan.set_steps_total(ask.ms);
    job.plan.mutable_memory()->set_activation_bytes(ask.bytes);
    const double seconds = ask.forecast_s > 0 ? ask.forecast_s : static_cast<double>(ask.ms) / 1000;
    for (const char* device : {"devices/cpu", "devices/gpu-0"}) {
      v1::Forecast& forecast = *job.plan.add_forecasts();
      forecast.set_device(device);
      forecast.set_total_seconds(seconds);
      forecast.set_total_seconds_low(seconds * 0.8);
      forecast.set_total_seconds_high(seconds * 1.5);
    }
    asks_[ask.id] = ask;
    const Result<Job> submitted = store_->jobs().submit(std::move(job));
    EXPECT_TRUE(submitted.ok()) << submitted.error().message;
    return *submitted;
  }

  Job get(const std::string& id) { return store_->jobs().find("default", id).value(); }
  void wait_until_idle() {
    EXPECT_TRUE(eventually([&] {
      const JobCounts counts = store_->jobs().count().value();
      return counts.queued + counts.starting + counts.running == 0 &&
             supervisor_->task_count() == 0;
    })) << describe();
  }
  std::string describe() {
    std::string text;
    for (const auto& [id, ask] : asks_) {
      const Job job = dispatcher_->explained(get(id));
      if (is_terminal(job.state)) continue;
      text +=
          id + ": " + std::string(name_of(job.state)) + " " + job.reason + " " + job.message + "\n";
    }
    return text;
  }

  /// Returns the state changes of all jobs, sorted by time.
  std::vector<Moment> read_moments() {
    std::vector<Moment> moments;
    for (const auto& [id, ask] : asks_) {
      for (const v1::Event& event : all_events(*store_, get(id).uid)) {
        if (!event.has_state()) continue;
        Moment m;
        m.time_us = event.time().seconds() * 1'000'000 + event.time().nanos() / 1000;
        m.seq = event.seq();
        m.id = id;
        m.state = event.state().state();
        m.reason = event.state().reason();
        m.devices.assign(event.state().devices().begin(), event.state().devices().end());
        moments.push_back(std::move(m));
      }
    }
    std::ranges::sort(moments, [](const Moment& a, const Moment& b) {
      // Among changes of the same microsecond, ends come before starts: the dispatcher decides on a
      // start only after the end is committed.
      return std::tuple(a.time_us, a.state == v1::STARTING, a.id, a.seq) <
             std::tuple(b.time_us, b.state == v1::STARTING, b.id, b.seq);
    });
    return moments;
  }

  /// Checks that no device was over capacity, that jobs of several devices got all of them or none,
  /// and that each job succeeded exactly once.
  void check(const std::vector<Moment>& moments) {
    std::map<std::string, std::vector<std::string>> on;  // jobs by device
    std::map<std::string, int> ended;
    for (const Moment& m : moments) {
      const ScriptedJob& ask = asks_.at(m.id);
      if (m.state == v1::STARTING) {
        const std::set<std::string> distinct(m.devices.begin(), m.devices.end());
        EXPECT_EQ(distinct.size(), static_cast<size_t>(ask.gpus)) << m.id;
        for (const std::string& device : m.devices) {
          const Device& d = devices_->find(device);
          EXPECT_EQ(d.model, devices_->find(m.devices.front()).model) << m.id;
          if (ask.device != v1::Resources::AUTO) {
            EXPECT_EQ(d.kind == DeviceKind::kGpu, ask.device == v1::Resources::GPU) << m.id;
          }
          on[device].push_back(m.id);
          int64_t bytes = 0;
          int threads = 0;
          bool exclusive = false;
          for (const std::string& id : on[device]) {
            bytes += asks_.at(id).bytes + d.overhead_bytes;
            threads += asks_.at(id).threads;
            exclusive |= asks_.at(id).exclusive;
          }
          EXPECT_LE(bytes, d.memory_bytes) << device << " with " << m.id;
          EXPECT_LE(std::ssize(on[device]), d.slots) << device << " with " << m.id;
          if (d.kind == DeviceKind::kCpu) {
            EXPECT_LE(threads, d.cores) << device << " with " << m.id;
          }
          EXPECT_TRUE(!exclusive || on[device].size() == 1) << device << " with " << m.id;
        }
      } else if (m.state != v1::RUNNING) {
        for (auto& [device, jobs] : on) std::erase(jobs, m.id);
        ended[m.id] += m.state == v1::SUCCEEDED;
      }
    }
    for (const auto& [id, ask] : asks_) EXPECT_EQ(ended[id], 1) << id << ": " << get(id).message;
    EXPECT_EQ(workers_->out_of_memory(), 0);
  }
  /// Returns the jobs that were started between the submission and the first start of job `id`.
  std::vector<std::string> overtakers(const std::vector<Moment>& moments, const std::string& id) {
    std::vector<std::string> started;
    bool waits = false;
    for (const Moment& m : moments) {
      if (m.id == id && m.state == v1::QUEUED) waits = true;
      if (m.id == id && m.state == v1::STARTING) break;
      if (waits && m.state == v1::STARTING) started.push_back(m.id);
    }
    return started;
  }

  TemporaryDirectory root_;
  StatePaths paths_{root_.path()};
  std::unique_ptr<Store> store_ = open_or_die(small_options(root_.path()));
  std::unique_ptr<ScriptedDevices> devices_;
  std::unique_ptr<PretendWorkers> workers_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::map<std::string, ScriptedJob> asks_;
};

}  // namespace trainyard::server
