#include "server/forecast/forecaster.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "server/config/log.h"
#include "server/forecast/outcome_history.h"
#include "server/store/proto_time.h"
#include "src/base/check.h"
#include "src/base/mutex.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

// Interval of checks for an idle server while rates are missing.
constexpr int64_t kIdleCheckUs = 1'000'000;
constexpr int64_t kRetryUs = 600'000'000;  // pause after a failed measurement

/// Returns whether the device may be measured: a drained or quarantined GPU may not.
bool is_usable(const Device& device) {
  return device.kind == DeviceKind::kCpu || device.schedulable;
}

struct Rates {
  int64_t time_us = 0;
  std::shared_ptr<const RateModel> model;
};

std::string times_text(double factor) {
  const double rounded = factor >= 10 ? std::round(factor) : std::round(factor * 10) / 10;
  return short_number(rounded) + "x";
}

}  // namespace

struct Forecaster::Impl : std::enable_shared_from_this<Impl> {
  Impl(Store& s, Inventory& i, ForecasterOptions o, const Clock& c)
      : store(s), inventory(i), options(std::move(o)), clock(c), history(s) {}

  RatesKey key_of(const Device& device, int32_t threads, v1::Recipe::Precision precision) const {
    const bool cpu = device.kind == DeviceKind::kCpu;
    return {device.model + (cpu ? ", " + std::to_string(device.cores) + " cores" : "") + ", " +
                options.build,
            cpu ? threads : 0, computed_precision(precision, cpu)};
  }
  void add_rates(const StoredRates& stored) TRAINYARD_REQUIRES(mu) {
    Result<DeviceRates> parsed = parse_rates(stored.rates);
    if (!parsed.ok()) {
      spdlog::warn("event=rates_unreadable {}", kv("message", parsed.error().message));
      return;
    }
    rates[stored.key] = {stored.time_us, std::make_shared<RateModel>(std::move(parsed).value())};
    ++version;
  }
  /// Reads the outcomes of jobs that have ended since the last call.
  void read_outcomes() TRAINYARD_REQUIRES(mu) { version += history.read(); }
  v1::Forecast forecast(const ForecastQuery& query, const Device& device, const RunWork& work)
      TRAINYARD_REQUIRES(mu);

  void add_missing_rates(const Devices& devices) TRAINYARD_REQUIRES(mu) {
    for (const Device& device : devices.devices) {
      if (!is_usable(device)) continue;
      want(key_of(device, options.threads_per_job, v1::Recipe::TF32), device);
    }
  }
  void want(const RatesKey& key, const Device& device) TRAINYARD_REQUIRES(mu) {
    if (options.idle_us < 0 || rates.contains(key) || wanted.contains(key)) return;
    wanted.emplace(key, device);
    wake.notify_all();
  }
  std::string why_missing(const RatesKey& key) const TRAINYARD_REQUIRES(mu) {
    if (options.idle_us < 0) return "this server does not measure the speed of devices";
    const std::string what = key.threads == 0 ? ""
                             : key.threads == 1
                                 ? " with 1 thread"
                                 : " with " + std::to_string(key.threads) + " threads";
    const auto failure = failed.find(key);
    return failure != failed.end()
               ? "measuring the speed" + what + " failed: " + failure->second.second
               : "the speed" + what +
                     " has not been measured yet; the server does so when no job runs";
  }
  /// Returns a device of the same kind and model as `device` on which jobs may start now.
  std::optional<Device> usable_like(const Device& device) {
    const Devices now = inventory.read();
    for (const Device& d : now.devices) {
      if (d.kind == device.kind && d.model == device.model && is_usable(d)) return d;
    }
    return std::nullopt;
  }
  void run();
  void measured(const RatesKey& key, const Device& device, Result<std::string> json);

  Store& store;
  Inventory& inventory;
  const ForecasterOptions options;
  const Clock& clock;
  Calibrate calibrate;  // set before the thread starts

  // steady-clock time of the last change of a job that the scheduler considers
  std::atomic<int64_t> busy_us{0};
  std::atomic<int64_t> disturbances{0};

  Mutex mu;
  CondVar wake;
  bool stopped TRAINYARD_GUARDED_BY(mu) = false;
  bool measuring TRAINYARD_GUARDED_BY(mu) = false;
  int64_t measuring_since_us TRAINYARD_GUARDED_BY(mu) = 0;
  int64_t disturbances_before TRAINYARD_GUARDED_BY(mu) = 0;
  std::map<RatesKey, Device> wanted TRAINYARD_GUARDED_BY(mu);
  std::map<RatesKey, std::pair<int64_t, std::string>> failed TRAINYARD_GUARDED_BY(mu);
  std::map<RatesKey, Rates> rates TRAINYARD_GUARDED_BY(mu);
  OutcomeHistory history;  // guarded by mu, except for grow()
  // Grows with each change of the data from which forecasts are computed.
  int64_t version TRAINYARD_GUARDED_BY(mu) = 0;
  std::unordered_map<std::string, std::pair<int64_t, std::vector<v1::Forecast>>> kept
      TRAINYARD_GUARDED_BY(mu);
  std::thread thread;
};

v1::Forecast Forecaster::Impl::forecast(const ForecastQuery& query, const Device& device,
                                        const RunWork& work) {
  const bool cpu = device.kind == DeviceKind::kCpu;
  v1::Forecast out;
  out.set_device(device.name);
  out.set_device_model(device.model);
  out.set_devices(cpu ? 1 : query.gpus);
  out.set_memory_bytes((cpu ? query.bytes_on_cpu : query.plan_bytes) + device.overhead_bytes);
  out.set_graph(work.step.digest);
  const RatesKey key = key_of(device, query.threads, query.precision);
  const auto known = rates.find(key);
  if (known == rates.end()) {
    out.set_basis("unknown: " + why_missing(key));
    want(key, device);
    return out;
  }
  const std::optional<MeasuredSteps> measured = history.steps(
      outcome_key(device.model, cpu ? query.threads : 0, query.precision, work.step.digest));
  const Result<RunForecast> run = forecast_run(work, *known->second.model, measured);
  if (!run.ok()) {
    out.set_basis("unknown: " + run.error().message);
    return out;
  }
  set_run(*run, out);
  out.set_basis(measured ? finished_jobs_text(*measured)
                : cpu    ? "speed measured with " + std::to_string(key.threads) +
                            (key.threads == 1 ? " thread" : " threads")
                      : "speed measured on this device");
  if (const std::string link = assumed_link(work.step); !measured && !link.empty()) {
    out.set_basis(out.basis() + "; " + link);
  }
  out.set_energy_joules(run->total.seconds * known->second.model->rates().watts * out.devices());
  const double price = cpu ? options.cpu_price_per_hour : options.gpu_price_per_hour;
  out.set_cost(run->total.seconds / kSecondsPerHour * price * out.devices());
  return out;
}

void Forecaster::Impl::measured(const RatesKey& key, const Device& device,
                                Result<std::string> json) {
  std::optional<StoredRates> stored;
  {
    const MutexLock lock(mu);
    TRAINYARD_CHECK(measuring, "rates of " + device.name + " arrive although no measurement runs");
    measuring = false;
    wake.notify_all();
    if (stopped) return;
    if (!json.ok()) {
      spdlog::warn("event=rates_not_measured {} {}", kv("device", device.name),
                   kv("message", json.error().message));
      failed[key] = {clock.steady_us() + kRetryUs, json.error().message};
      ++version;  // the message about missing rates changes
      return;
    }
    if (disturbances != disturbances_before) {
      spdlog::info("event=rates_measurement_disturbed {} {}", kv("device", device.name),
                   kv("message", "a job ran meanwhile; the rates are measured again"));
      return;
    }
    if (Result<DeviceRates> measured = parse_rates(*json); measured.ok()) {
      // The rest of the time is the start of the worker process, which every job needs.
      const double seconds = static_cast<double>(clock.steady_us() - measuring_since_us) * 1e-6;
      measured->process_seconds = std::max(0.0, seconds - measured->measure_seconds);
      json = to_json_text(*measured);
    }
    stored = StoredRates{key, clock.wall_us(), std::move(json).value()};
    add_rates(*stored);
    if (!rates.contains(key)) {
      failed[key] = {clock.steady_us() + kRetryUs, "the worker sent rates that cannot be used"};
      return;
    }
    wanted.erase(key);
    failed.erase(key);
    spdlog::info("event=rates_measured {} threads={} seconds={:.2f}", kv("device", device.name),
                 key.threads, rates[key].model->rates().measure_seconds);
  }
  store.forecasts().save_rates(std::move(*stored), [](const Status& saved) {
    if (!saved.ok()) {
      spdlog::warn("event=rates_not_stored {}", kv("message", saved.error().message));
    }
  });
}

void Forecaster::Impl::run() {
  const Devices devices = inventory.read();
  MutexLock lock(mu);
  add_missing_rates(devices);
  while (!stopped) {
    wake.wait(lock,
              [&]() TRAINYARD_REQUIRES(mu) { return stopped || (!wanted.empty() && !measuring); });
    if (stopped) return;
    const int64_t now = clock.steady_us();
    const auto next =
        std::find_if(wanted.begin(), wanted.end(), [&](const auto& entry) TRAINYARD_REQUIRES(mu) {
          const auto failure = failed.find(entry.first);
          return failure == failed.end() || failure->second.first <= now;
        });
    bool idle = next != wanted.end() && now - busy_us >= options.idle_us;
    if (idle) {
      const RatesKey key = next->first;
      const Device first = next->second;
      lock.unlock();
      const Result<JobCounts> jobs = store.jobs().count();
      idle = jobs.ok() && jobs->queued + jobs->starting + jobs->running == 0;
      const std::optional<Device> device = idle ? usable_like(first) : std::nullopt;
      lock.lock();
      if (stopped) return;
      if (idle && !device) {
        failed[key] = {now + kRetryUs, "no such device can be used now"};
        ++version;  // the message about missing rates changes
        continue;
      }
      if (idle) {
        measuring = true;
        measuring_since_us = clock.steady_us();
        disturbances_before = disturbances;
        lock.unlock();
        spdlog::info("event=rates_measurement_started {} threads={}", kv("device", device->name),
                     key.threads);
        calibrate(*device, key.threads, key.precision,
                  [self = shared_from_this(), key, device](Result<std::string> json) {
                    self->measured(key, *device, std::move(json));
                  });
        lock.lock();
      }
    }
    if (!idle) {
      // A newly requested measurement does not wait for the retry of a failed one.
      const size_t wanted_before = wanted.size();
      const int64_t pause_us = next == wanted.end() ? kRetryUs : kIdleCheckUs;
      wake.wait_for(lock, std::chrono::microseconds(pause_us), [&]() TRAINYARD_REQUIRES(mu) {
        return stopped || wanted.size() != wanted_before;
      });
    }
  }
}

Forecaster::Forecaster(Store& store, Inventory& inventory, ForecasterOptions options,
                       const Clock& clock)
    : impl_(std::make_shared<Impl>(store, inventory, std::move(options), clock)) {
  impl_->busy_us = clock.steady_us();
  store.observe([impl = impl_](std::span<const JobChange> changes) {
    for (const JobChange& change : changes) {
      if (is_terminal(change.state)) impl->history.grow();
      if (!change.reschedules) continue;
      impl->busy_us = impl->clock.steady_us();
      ++impl->disturbances;
    }
  });
}

Forecaster::~Forecaster() { stop(); }

Status Forecaster::open() {
  ASSIGN_OR_RETURN(const std::vector<StoredRates> all, impl_->store.forecasts().rates());
  const MutexLock lock(impl_->mu);
  for (const StoredRates& stored : all) impl_->add_rates(stored);
  return {};
}

void Forecaster::start(Calibrate calibrate) {
  if (impl_->options.idle_us < 0) return;
  impl_->calibrate = std::move(calibrate);
  impl_->thread = std::thread([impl = impl_] { impl->run(); });
}

void Forecaster::stop() {
  {
    const MutexLock lock(impl_->mu);
    impl_->stopped = true;
    impl_->wake.notify_all();
  }
  if (impl_->thread.joinable()) impl_->thread.join();
}

std::vector<v1::Forecast> Forecaster::forecast(const ForecastQuery& query, const Devices& devices) {
  const MutexLock lock(impl_->mu);
  impl_->read_outcomes();
  auto& kept = impl_->kept;
  if (const auto it = kept.find(query.key);
      it != kept.end() && it->second.first == impl_->version) {
    return it->second.second;
  }
  std::vector<v1::Forecast> all;
  std::vector<std::string> models;
  for (const Device& device : devices.devices) {
    const bool cpu = device.kind == DeviceKind::kCpu;
    const std::shared_ptr<const RunWork>& work = cpu ? query.cpu : query.gpu;
    if (work == nullptr || std::ranges::find(models, device.model) != models.end()) continue;
    models.push_back(device.model);
    all.push_back(impl_->forecast(query, device, *work));
  }
  if (kept.size() >= kForecastsKeptMax) kept.clear();
  kept[query.key] = {impl_->version, all};
  return all;
}

Result<TimeRange> Forecaster::step_time(const Device& device, int32_t threads,
                                        v1::Recipe::Precision precision, const RunWork& work) {
  const MutexLock lock(impl_->mu);
  const RatesKey key = impl_->key_of(device, threads, precision);
  const auto known = impl_->rates.find(key);
  if (known == impl_->rates.end()) {
    impl_->want(key, device);
    return make_error(ErrorCode::kNotFound, "RATE_UNKNOWN", impl_->why_missing(key));
  }
  ASSIGN_OR_RETURN(const RunForecast run, forecast_run(work, *known->second.model));
  return run.step;
}

v1::DeviceForecasts Forecaster::describe(const Device& device) {
  const MutexLock lock(impl_->mu);
  impl_->read_outcomes();
  v1::DeviceForecasts out;
  const bool cpu = device.kind == DeviceKind::kCpu;
  out.set_price_per_hour(cpu ? impl_->options.cpu_price_per_hour
                             : impl_->options.gpu_price_per_hour);
  for (const auto& [key, known] : impl_->rates) {
    if (key != impl_->key_of(device, key.threads, key.precision)) continue;
    v1::MeasuredRates& rates = *out.add_rates();
    rates.set_threads(key.threads);
    rates.set_precision(key.precision);
    *rates.mutable_measure_time() = to_timestamp(known.time_us);
    rates.set_measure_seconds(known.model->rates().measure_seconds);
    rates.set_flops_per_second(known.model->flops_per_second());
    rates.set_bytes_per_second(known.model->bytes_per_second());
  }
  for (const auto& [key, of] : impl_->wanted) {
    if (of.model != device.model) continue;
    const auto failure = impl_->failed.find(key);
    out.set_missing(failure != impl_->failed.end()
                        ? "measuring the speed failed: " + failure->second.second
                        : "the speed is measured once no job has run for " +
                              std::to_string(impl_->options.idle_us / 1'000'000) + " s");
  }
  impl_->history.describe([&](const std::string& model) { return model == device.model; }, out);
  return out;
}

std::string forecast_advice(const std::vector<v1::Forecast>& forecasts) {
  const v1::Forecast* cpu = nullptr;
  const v1::Forecast* gpu = nullptr;
  for (const v1::Forecast& f : forecasts) {
    if (f.total_seconds() <= 0) continue;
    if (f.device() == "devices/cpu") {
      cpu = &f;
    } else if (gpu == nullptr || f.total_seconds() < gpu->total_seconds()) {
      gpu = &f;
    }
  }
  const auto takes = [](const v1::Forecast& f) { return duration_text(f.total_seconds()); };
  if (cpu != nullptr && gpu != nullptr) {
    const double faster = cpu->total_seconds() / gpu->total_seconds();
    const std::string price = cpu->cost() > 0 && gpu->cost() > 0
                                  ? " for " + times_text(gpu->cost() / cpu->cost()) + " the price"
                                  : "";
    if (faster < 1) {
      return "CPU: " + times_text(1 / faster) + " faster than the GPU (" + gpu->device_model() +
             "); it takes " + takes(*cpu) + ".";
    }
    return "GPU (" + gpu->device_model() + "): " + times_text(faster) + " faster" + price +
           "; on the CPU this takes " + takes(*cpu) + ".";
  }
  if (const v1::Forecast* one = cpu != nullptr ? cpu : gpu; one != nullptr) {
    return std::string("On the ") + (one == cpu ? "CPU" : "GPU") + " this takes " + takes(*one) +
           " (" + duration_text(one->total_seconds_low()) + " to " +
           duration_text(one->total_seconds_high()) + ").";
  }
  return "";
}

}  // namespace trainyard::server
