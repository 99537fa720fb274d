// tests/server/pretend_workers.h: scripted devices, and workers that only pretend to train on them.
//
// Each worker is a real process that does nothing, and the test makes its calls to the supervisor.
// It takes its device's memory, reports its start, and reports success after the time in its job's
// label "ms". When told to stop, it stops with all its work saved. With the label "crash" its first
// attempt is killed halfway. A worker that finds too little memory on its device is counted, since
// a real one would have failed.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/config/paths.h"
#include "server/inventory/inventory.h"
#include "server/processes/supervisor.h"
#include "server/protocol/versions.h"
#include "server/store/store.h"
#include "tests/support/tiny_model.h"

namespace trainyard::server {

/// Devices whose memory is used by jobs and by outside processes. Thread-safe.
class ScriptedDevices final : public Inventory {
 public:
  explicit ScriptedDevices(std::vector<Device> devices) : devices_(std::move(devices)) {}

  Devices read() override {
    if (before_reading_) before_reading_();
    const std::lock_guard lock(mu_);
    if (coming_ && std::ranges::all_of(coming_->beside, [&](const std::string& uid) {
          return holders_[coming_->device].contains(uid);
        })) {
      others_[coming_->device] = coming_->bytes;
    }
    coming_.reset();
    Devices now;
    now.devices = devices_;
    for (Device& d : now.devices) d.memory_used_bytes = used(d);
    last_holders_ = holders_;
    last_others_ = others_;
    return now;
  }
  /// Sets a function that the reading thread calls before each reading. Set it before that thread
  /// starts.
  void before_reading(std::function<void()> call) { before_reading_ = std::move(call); }
  /// Sets the memory that outside processes use on the device from now on.
  void set_others(const std::string& device, int64_t bytes) {
    const std::lock_guard lock(mu_);
    others_[device] = bytes;
  }
  /// Sets the memory of outside processes at the next reading, but only if all of these jobs have
  /// taken their memory by then.
  void set_others_beside(std::vector<std::string> uids, const std::string& device, int64_t bytes) {
    const std::lock_guard lock(mu_);
    coming_ = {device, bytes, std::move(uids)};
  }
  /// Takes memory for a job. Returns false if too little is left; a real worker would fail then.
  bool take(const std::string& device, const std::string& uid, int64_t bytes) {
    const std::lock_guard lock(mu_);
    holders_[device][uid] = bytes + find(device).overhead_bytes;
    return used(find(device)) <= find(device).memory_bytes;
  }
  void give_back(const std::string& device, const std::string& uid) {
    const std::lock_guard lock(mu_);
    holders_[device].erase(uid);
  }
  using Holders =
      std::map<std::string, std::map<std::string, int64_t>>;  // bytes, by device and job
  /// Returns the jobs that used memory at the last reading.
  Holders last_holders() {
    const std::lock_guard lock(mu_);
    return last_holders_;
  }
  /// Returns the memory that outside processes used at the last reading, by device.
  std::map<std::string, int64_t> last_others() {
    const std::lock_guard lock(mu_);
    return last_others_;
  }
  int64_t others(const std::string& device) {
    const std::lock_guard lock(mu_);
    return others_[device];
  }
  const std::vector<Device>& all() const { return devices_; }
  const Device& find(const std::string& name) const {
    for (const Device& d : devices_) {
      if (d.name == name) return d;
    }
    throw std::runtime_error("no device " + name);
  }

 private:
  int64_t used(const Device& device) {
    int64_t bytes = others_[device.name];
    for (const auto& [uid, held] : holders_[device.name]) bytes += held;
    return bytes;
  }

  const std::vector<Device> devices_;
  std::function<void()> before_reading_;
  std::mutex mu_;
  struct Coming {
    std::string device;
    int64_t bytes = 0;
    std::vector<std::string> beside;  // UIDs of jobs
  };
  std::optional<Coming> coming_;
  std::map<std::string, int64_t> others_, last_others_;
  Holders holders_, last_holders_;
};

class PretendWorkers {
 public:
  PretendWorkers(Store& store, ScriptedDevices& devices, StatePaths paths)
      : store_(store),
        devices_(devices),
        paths_(std::move(paths)),
        nonces_(paths_.root() / "nonces") {
    std::filesystem::create_directories(nonces_);
    std::ofstream(program()) << "#!/bin/sh\nread -r nonce\nprintf %s $nonce > " << nonces_.string()
                             << "/.$4\nmv " << nonces_.string() << "/.$4 " << nonces_.string()
                             << "/$4\nexec sleep 1000\n";
    ::chmod(program().c_str(), 0700);
  }
  ~PretendWorkers() { halt(); }

  std::filesystem::path program() const { return paths_.root() / "pretend_worker"; }
  void start(Supervisor& supervisor) {
    supervisor_ = &supervisor;
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        poll();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }
  void halt() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  /// Sets the step time that all workers report from now on.
  void report_step_seconds(double seconds) { step_seconds_ = seconds; }
  int out_of_memory() const { return out_of_memory_; }
  int attempts() const { return attempts_; }
  int stopped() const { return stopped_; }

 private:
  using Clock = std::chrono::steady_clock;

  /// Receives the commands to one worker, from any thread.
  struct Sink final : CommandSink {
    void send(const v1::WorkerCommand& command) override {
      if (command.has_stop()) stop = true;
    }
    std::atomic<bool> stop{false};
    std::atomic<bool> outcome_durable{false};  // whether its outcome is durable
  };
  struct Worker {
    std::string uid;
    v1::TrainTask task;
    std::shared_ptr<Sink> sink;
    int64_t bytes = 0;
    int64_t number = 0;  // number of its newest report
    Clock::time_point begin, end;
    double step_seconds_reported = 0;
    bool crashes = false, has_memory = false, reports_end = false;
  };

  static int64_t label(const v1::TrainTask& task, const std::string& key) {
    const auto found = task.spec().labels().find(key);
    return found == task.spec().labels().end() ? 0 : std::stoll(found->second);
  }

  void poll() {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(nonces_, ignored)) {
      const std::string id = entry.path().filename().string();
      if (id.starts_with('.')) continue;
      std::string nonce;
      std::ifstream(entry.path()) >> nonce;
      std::filesystem::remove(entry.path());
      attach(id, nonce);
    }
    for (auto it = workers_.begin(); it != workers_.end();) {
      it = advance(it->first, it->second) ? std::next(it) : workers_.erase(it);
    }
  }

  void attach(const std::string& id, const std::string& nonce) {
    v1::AttachRequest request;
    request.set_task(id);
    request.set_nonce(nonce);
    request.set_protocol_min(kProtocols.oldest);
    request.set_protocol_max(kProtocols.newest);
    const Result<v1::Assignment> assignment = supervisor_->attach(request);
    if (!assignment.ok()) return;  // the task was stopped before the worker attached
    Worker worker;
    worker.uid = id.substr(0, id.rfind('-'));
    worker.task = assignment->train();
    worker.sink = std::make_shared<Sink>();
    worker.bytes = label(worker.task, "bytes");
    v1::WorkerReport hello;
    hello.set_task(id);
    hello.set_nonce(nonce);
    hello.set_protocol(assignment->protocol());
    hello.mutable_heartbeat();
    if (!supervisor_->connect(hello, worker.sink).ok()) return;
    ++attempts_;
    for (const std::string& device : worker.task.devices()) {
      if (!devices_.take(device, worker.uid, worker.bytes)) ++out_of_memory_;
    }
    worker.has_memory = true;
    const int64_t left_ms = label(worker.task, "ms") - done_ms_[worker.uid];
    worker.begin = Clock::now();
    worker.end = worker.begin + std::chrono::milliseconds(left_ms);
    worker.crashes = worker.task.attempt() == 1 && label(worker.task, "crash") > 0;
    if (worker.crashes) worker.end = worker.begin + std::chrono::milliseconds(left_ms / 2);
    v1::WorkerReport started;
    v1::RunPlan& plan = *started.mutable_started()->mutable_plan();
    plan.set_steps_total(label(worker.task, "ms"));
    plan.mutable_memory()->set_activation_bytes(worker.bytes);
    started.mutable_started()->set_resumed_from_step(done_ms_[worker.uid]);
    report(id, worker, std::move(started), nullptr);
    workers_.emplace(id, std::move(worker));
  }

  void report(const std::string& id, Worker& worker, v1::WorkerReport report,
              std::shared_ptr<Sink> sink) {
    report.set_number(++worker.number);
    supervisor_->report(id, report, [sink](const Status& s) {
      EXPECT_TRUE(s.ok()) << s.error().message;
      if (sink) sink->outcome_durable = true;
    });
  }

  /// Returns false once the worker's process has ended.
  bool advance(const std::string& id, Worker& worker) {
    if (worker.reports_end) {
      if (!worker.sink->outcome_durable) return true;
      kill(worker);
      return false;
    }
    if (worker.step_seconds_reported != step_seconds_) {
      worker.step_seconds_reported = step_seconds_;
      v1::WorkerReport beat;
      v1::RunTimes& times = *beat.mutable_heartbeat()->mutable_times();
      times.set_steps(100);
      times.set_step_seconds(step_seconds_);
      times.set_step_seconds_low(step_seconds_);
      times.set_step_seconds_high(step_seconds_);
      supervisor_->report(id, beat, [](const Status&) {});
    }
    const bool over = Clock::now() >= worker.end;
    if (!over && !worker.sink->stop) return true;
    if (over && worker.crashes) {
      kill(worker);
      return false;
    }
    v1::WorkerReport end;
    if (over) {
      end.mutable_outcome()->set_kind(v1::Outcome::SUCCEEDED);
      end.mutable_outcome()->set_steps_done(label(worker.task, "ms"));
      write_tiny_model(worker.task.model_dir());
    } else {
      ++stopped_;
      const auto passed =
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - worker.begin);
      done_ms_[worker.uid] += passed.count();
      v1::WorkerReport checkpoint;
      checkpoint.mutable_checkpoint()->set_step(done_ms_[worker.uid]);
      report(id, worker, std::move(checkpoint), nullptr);
      end.mutable_outcome()->set_kind(v1::Outcome::STOPPED);
      end.mutable_outcome()->set_steps_done(done_ms_[worker.uid]);
    }
    worker.reports_end = true;
    report(id, worker, std::move(end), worker.sink);
    return true;
  }

  void kill(Worker& worker) {
    for (const std::string& device : worker.task.devices()) {
      devices_.give_back(device, worker.uid);
    }
    const Result<Attempt> attempt = store_.jobs().find_attempt(worker.uid, worker.task.attempt());
    if (attempt.ok() && attempt->pid > 0) ::kill(attempt->pid, SIGKILL);
  }

  Store& store_;
  ScriptedDevices& devices_;
  const StatePaths paths_;
  const std::filesystem::path nonces_;
  Supervisor* supervisor_ = nullptr;
  std::map<std::string, Worker> workers_;   // by task
  std::map<std::string, int64_t> done_ms_;  // by job
  std::atomic<double> step_seconds_{0};
  std::atomic<int> out_of_memory_{0}, attempts_{0}, stopped_{0};
  std::jthread thread_;
};

}  // namespace trainyard::server
