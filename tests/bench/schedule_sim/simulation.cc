#include "tests/bench/schedule_sim/simulation.h"

#include <ctime>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

namespace trainyard::sim {
namespace {

/// If no job has ended for this time although some are left, the policy has forgotten them.
constexpr int64_t kStuckUs = 60 * 24 * kHourUs;

double cpu_ms() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<long>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

double alone_factor(const TraceJob& job) {
  return job.wish == DeviceWish::kCpu ? job.cpu_slowdown : 1;
}

const char* name_of(Phase phase) {
  constexpr const char* kNames[] = {"coming",   "waiting", "starting", "running",
                                    "stopping", "done",    "withdrawn"};
  return kNames[static_cast<size_t>(phase)];
}

}  // namespace

std::string class_of(const TraceJob& job) {
  if (job.wish == DeviceWish::kCpu) return "CPU";
  const double hours = static_cast<double>(job.work_us) * job.ends_at / kHourUs;
  if (job.gpus == 1) return hours < 0.1 ? "1 GPU, short" : hours < 1 ? "1 GPU" : "1 GPU, long";
  return job.gpus < 8 ? "2-7 GPUs" : "8+ GPUs";
}

const std::vector<std::string>& class_names() {
  static const std::vector<std::string> names = {
      "all", "CPU", "1 GPU, short", "1 GPU", "1 GPU, long", "2-7 GPUs", "8+ GPUs", "urgent"};
  return names;
}

Simulation::Simulation(const Cluster& cluster, std::vector<TraceJob> jobs,
                       SimulationOptions options)
    : world_(cluster, std::move(jobs), options.physics),
      options_(options),
      failures_(options.seed, 11),
      others_(options.seed, 12) {
  int owners = 0;
  for (const TraceJob& job : world_.jobs()) owners = std::max(owners, job.owner + 1);
  owner_gpu_us_.resize(static_cast<size_t>(owners));
  owner_waiting_.resize(static_cast<size_t>(owners));
  owner_waited_.resize(static_cast<size_t>(owners));
}

void Simulation::schedule(int64_t time_us, Kind kind, int subject, int64_t version) {
  events_.push({time_us, ++number_, kind, subject, version});
}

void Simulation::schedule_first() {
  for (int id = 0; id < std::ssize(world_.jobs()); ++id) {
    const TraceJob& job = world_.job(id);
    schedule(job.arrive_us, Kind::kArrive, id);
    last_arrival_us_ = std::max(last_arrival_us_, job.arrive_us);
    if (job.cancel_after_us >= 0) {
      schedule(job.arrive_us + job.cancel_after_us, Kind::kWithdraw, id);
    }
  }
  open_jobs_ = std::ssize(world_.jobs());
  for (int d = 0; d < std::ssize(world_.machines()); ++d) {
    if (world_.machine(d).device.kind != DeviceKind::kGpu) continue;
    if (options_.device_mtbf_hours > 0) {
      const double hours = failures_.exponential(options_.device_mtbf_hours);
      schedule(static_cast<int64_t>(hours * kHourUs), Kind::kFail, d);
    }
    if (options_.others_share > 0) {
      schedule(static_cast<int64_t>(others_.exponential(options_.others_hours) * kHourUs),
               others_.chance(options_.others_share) ? Kind::kOthersCome : Kind::kOthersGo, d);
    }
  }
}

Results Simulation::run(SchedulingPolicy& policy) {
  schedule_first();
  int64_t moved_us = 0, open = open_jobs_;
  while (open_jobs_ > 0 && !events_.empty()) {
    const int64_t now_us = events_.top().time_us;
    while (hour_us_ + kHourUs <= now_us) close_hour();
    integrate();
    world_.advance(now_us);
    while (!events_.empty() && events_.top().time_us == now_us) {
      const Event event = events_.top();
      events_.pop();
      world_.set_event(++handled_);
      handle(event, policy);
      reschedule_touched(policy);
      if (options_.until_event == handled_) return collect(policy);
    }
    decide(policy);
    if (open != open_jobs_) moved_us = now_us, stands_still_ = false;
    open = open_jobs_;
    if (now_us - moved_us > kStuckUs / 2) note_never_held();
    if (now_us - moved_us > kStuckUs) break;
  }
  check_end();
  return collect(policy);
}

void Simulation::handle(const Event& event, SchedulingPolicy& policy) {
  const int subject = event.subject;
  const bool of_job = event.kind <= Kind::kStopped;
  // The event belongs to an attempt that is over.
  if (of_job && event.kind > Kind::kWithdraw && event.version != world_.state(subject).version) {
    return;
  }
  switch (event.kind) {
    case Kind::kArrive:
      world_.arrive(subject);
      break;
    case Kind::kWithdraw:
      if (world_.state(subject).phase != Phase::kWaiting) return;
      world_.withdraw(subject);
      --open_jobs_;
      break;
    case Kind::kRun:
      world_.run(subject);
      if (options_.worker_mtbf_hours > 0) {
        const double hours = failures_.exponential(options_.worker_mtbf_hours);
        schedule(world_.now_us() + static_cast<int64_t>(hours * kHourUs), Kind::kLose, subject,
                 event.version);
      }
      break;
    case Kind::kEnd:
      // the job has slowed down meanwhile, and a later event ends it
      if (world_.true_end_us(subject) > world_.now_us()) return;
      world_.end(subject);
      --open_jobs_;
      break;
    case Kind::kLose:
      lose_worker(subject);
      break;
    case Kind::kStopped: {
      const int beneficiary = world_.state(subject).preempted_for;
      world_.requeue(subject, /*saved=*/true, 0);
      --victims_of_[beneficiary];
      break;
    }
    case Kind::kFail:
      return fail(subject), report_device(policy, subject);
    case Kind::kRepair: {
      world_.set_failed(subject, false);
      const double hours = failures_.exponential(options_.device_mtbf_hours);
      schedule(world_.now_us() + static_cast<int64_t>(hours * kHourUs), Kind::kFail, subject);
      return report_device(policy, subject);
    }
    case Kind::kOthersCome:
      let_others_come(subject);
      return report_device(policy, subject);
    case Kind::kOthersGo: {
      world_.set_others(subject, 0);
      const double off = options_.others_hours * (1 - options_.others_share) /
                         std::max(0.01, options_.others_share);
      schedule(world_.now_us() + static_cast<int64_t>(others_.exponential(off) * kHourUs),
               Kind::kOthersCome, subject);
      return report_device(policy, subject);
    }
    case Kind::kWake:
      if (wake_us_ == event.time_us) wake_us_ = -1;
      return;
  }
  note(static_cast<int64_t>(event.kind), subject, world_.now_us());
  tell(policy, subject);
}

void Simulation::lose_worker(int id) {
  // As in server/scheduler/retry.h, the pause doubles with each loss.
  const int doublings = std::min(8, world_.state(id).losses);
  world_.requeue(id, /*saved=*/false, world_.now_us() + (kSecondUs / 5 << doublings));
}

void Simulation::fail(int device) {
  world_.set_failed(device, true);
  const std::vector<int> jobs = world_.device(device).jobs;
  for (const int id : jobs) {
    if (world_.state(id).phase == Phase::kStopping) {
      --victims_of_[world_.state(id).preempted_for];
      world_.requeue(id, /*saved=*/true, 0);
    } else {
      lose_worker(id);
    }
    note(static_cast<int64_t>(Kind::kLose), id, world_.now_us());
    lost_to_failure_.push_back(id);
  }
  const double hours = failures_.exponential(options_.device_repair_hours);
  schedule(world_.now_us() + static_cast<int64_t>(hours * kHourUs), Kind::kRepair, device);
}

void Simulation::let_others_come(int device) {
  const Device& d = world_.machine(device).device;
  const int64_t free = d.memory_bytes - world_.device(device).planned_bytes;
  const double share = others_.uniform(0.1, 0.9);
  world_.set_others(device,
                    static_cast<int64_t>(static_cast<double>(std::max<int64_t>(0, free)) * share));
  schedule(
      world_.now_us() + static_cast<int64_t>(others_.exponential(options_.others_hours) * kHourUs),
      Kind::kOthersGo, device);
}

void Simulation::reschedule_touched(SchedulingPolicy& policy) {
  for (const int id : std::exchange(lost_to_failure_, {})) tell(policy, id);
  for (const int id : world_.take_touched()) {
    const JobState& s = world_.state(id);
    if (s.phase != Phase::kRunning) continue;
    schedule(std::max(world_.now_us(), world_.true_end_us(id)), Kind::kEnd, id, s.version);
    const double begin = cpu_ms();
    policy.forecast_changed(world_, id);
    index_now_ms_ += cpu_ms() - begin;
  }
}

void Simulation::tell(SchedulingPolicy& policy, int id) {
  const double begin = cpu_ms();
  policy.job_changed(world_, id);
  index_now_ms_ += cpu_ms() - begin;
  const TraceJob& job = world_.job(id);
  if (job.wish == DeviceWish::kCpu) return;
  // Updates the owner's past GPU time, and its current use, for the measure of fairness.
  const JobState& s = world_.state(id);
  OwnerPart& part = owner_parts_[id];
  const auto owner = static_cast<size_t>(job.owner);
  const bool waits = s.phase == Phase::kWaiting;
  const bool on_gpus = !s.devices.empty() && *s.kind_before == DeviceKind::kGpu;
  owner_waiting_[owner] += waits - part.waits;
  part.waits = waits;
  if (owner_waiting_[owner] == 0) owner_waited_[owner] = false;
  if (part.has != on_gpus) {
    const int64_t from = std::max(hour_us_, part.since_us);
    if (part.has) owner_gpu_us_[owner] += static_cast<double>(world_.now_us() - from) * job.gpus;
    part.since_us = world_.now_us();
    part.has = on_gpus;
  }
}

void Simulation::report_device(SchedulingPolicy& policy, int device) {
  const double begin = cpu_ms();
  policy.device_changed(world_, device);
  index_now_ms_ += cpu_ms() - begin;
}

void Simulation::close_hour() {
  const int64_t end_us = hour_us_ + kHourUs;
  for (auto part = owner_parts_.begin(); part != owner_parts_.end();) {
    auto& [id, p] = *part;
    if (p.has) {
      const int64_t from = std::max(hour_us_, p.since_us);
      owner_gpu_us_[static_cast<size_t>(world_.job(id).owner)] +=
          static_cast<double>(end_us - from) * world_.job(id).gpus;
    }
    part = !p.has && !p.waits ? owner_parts_.erase(part) : std::next(part);
  }
  double sum = 0, squares = 0;
  int owners = 0;
  for (size_t o = 0; o < owner_gpu_us_.size(); ++o) {
    if (owner_waited_[o]) {
      sum += owner_gpu_us_[o];
      squares += owner_gpu_us_[o] * owner_gpu_us_[o];
      ++owners;
    }
    owner_gpu_us_[o] = 0;
    owner_waited_[o] = owner_waiting_[o] > 0;
  }
  if (owners > 1 && squares > 0 && end_us <= last_arrival_us_) {
    jain_sum_ += sum * sum / (owners * squares);
    ++jain_hours_;
  }
  hour_us_ = end_us;
}

void Simulation::decide(SchedulingPolicy& policy) {
  waiting_max_ = std::max(waiting_max_, std::ssize(world_.waiting()));
  Plan plan;
  do {
    const double begin = cpu_ms();
    plan = policy.decide(world_);
    decide_ms_.push_back(cpu_ms() - begin);
    index_ms_.push_back(std::exchange(index_now_ms_, 0));
    ++decisions_;
    carry_out(plan, policy);
  } while (plan.more && !plan.starts.empty());
  if (plan.wake_us && (wake_us_ < 0 || *plan.wake_us < wake_us_)) {
    wake_us_ = std::max(*plan.wake_us, world_.now_us() + 1);
    schedule(wake_us_, Kind::kWake, 0);
  }
  std::erase_if(victims_of_, [&](const auto& entry) {
    if (entry.second > 0) return false;
    useless_preemptions_ += world_.state(entry.first).phase == Phase::kWaiting;
    return true;
  });
  if (options_.strict) check_invariants();
}

void Simulation::carry_out(const Plan& plan, SchedulingPolicy& policy) {
  for (const Start& start : plan.starts) {
    // a job ahead of it has started, so the promise no longer applies
    if (promised_ >= 0 && is_ahead(start.job, promised_)) promised_ = -1;
    world_.start(start.job, start.devices);
    schedule(world_.now_us() + options_.physics.start_us, Kind::kRun, start.job,
             world_.state(start.job).version);
    for (const int device : start.devices) {
      note(-1, start.job, device);
      if (world_.machine(device).device.kind != DeviceKind::kGpu) continue;
      jobs_on_gpu_max_ =
          std::max(jobs_on_gpu_max_, static_cast<int>(world_.device(device).jobs.size()));
    }
    const int64_t waited = world_.now_us() - world_.state(start.job).wait_since_us;
    if (options_.starvation_us > 0 && waited > options_.starvation_us) {
      world_.violate("starved", "job " + std::to_string(start.job) + " waited " +
                                    std::to_string(waited / kSecondUs) + " s");
    }
    tell(policy, start.job);
  }
  for (const Preempt& preempt : plan.preempts) {
    world_.preempt(preempt.victim, preempt.beneficiary, policy.least_run_us());
    schedule(world_.now_us() + options_.physics.stop_us, Kind::kStopped, preempt.victim,
             world_.state(preempt.victim).version);
    ++victims_of_[preempt.beneficiary];
    note(-2, preempt.victim, preempt.beneficiary);
    tell(policy, preempt.victim);
  }
  reschedule_touched(policy);
}

void Simulation::note(int64_t a, int64_t b, int64_t c) {
  for (const int64_t value : {a, b, c}) {  // FNV-1a hash
    for (int byte = 0; byte < 8; ++byte) {
      digest_ =
          (digest_ ^ ((static_cast<uint64_t>(value) >> (8 * byte)) & 0xff)) * 1099511628211ull;
    }
  }
}

void Simulation::integrate() {
  const int64_t until = std::min(events_.top().time_us, last_arrival_us_);
  if (until <= last_us_) return;
  const auto passed = static_cast<double>(until - last_us_);
  busy_gpu_us_ += passed * world_.busy_gpus();
  had_gpu_us_ += passed * world_.placed_gpus();
  work_us_ += passed * world_.work_rate();
  last_us_ = until;
}

bool Simulation::is_ahead(int a, int b) const {
  const int of_a = world_.job(a).priority, of_b = world_.job(b).priority;
  return of_a != of_b ? of_a > of_b : a < b;
}

int Simulation::first_in_order() const {
  int first = -1;
  for (const int id : world_.waiting()) {
    if (world_.state(id).retry_us > world_.now_us()) continue;
    if (first < 0 || is_ahead(id, first)) first = id;
  }
  return first;
}

int64_t Simulation::earliest_fit_us(int id) const {
  // For each group, the times at which its devices have room; the job needs as many devices as it
  // has GPUs.
  std::map<int, std::vector<int64_t>> by_group;
  for (int d = 0; d < std::ssize(world_.machines()); ++d) {
    const Machine& machine = world_.machine(d);
    if (!world_.kind_allowed(id, machine.device.kind)) continue;
    std::vector<int64_t> times = {world_.now_us()};
    for (const int other : world_.device(d).jobs) times.push_back(world_.forecast_end_us(other));
    std::ranges::sort(times);
    for (const int64_t time : times) {
      if (!world_.fits_at(id, d, time)) continue;
      by_group[machine.group].push_back(time);
      break;
    }
  }
  int64_t earliest = std::numeric_limits<int64_t>::max();
  const auto gpus = static_cast<size_t>(world_.job(id).gpus);
  for (auto& [group, times] : by_group) {
    if (times.size() < gpus) continue;
    std::ranges::sort(times);
    earliest = std::min(earliest, times[gpus - 1]);
  }
  return earliest;
}

void Simulation::check_invariants() {
  const int first = first_in_order();
  if (first < 0 || world_.job(first).wish == DeviceWish::kAuto) {
    promised_ = -1;
    return;
  }
  const int64_t fits_us = earliest_fit_us(first);
  const std::string who = "job " + std::to_string(first);
  if (fits_us <= world_.now_us()) world_.violate("first", who + " fits but does not start");
  if (first == promised_ && fits_us > promise_us_ + 1) {
    world_.violate("reservation", who + " fitted at " + std::to_string(promise_us_) +
                                      " us, now at " + std::to_string(fits_us));
  }
  promise_us_ = first == promised_ ? std::min(promise_us_, fits_us) : fits_us;
  promised_ = first;
}

void Simulation::note_never_held() {
  if (!stands_still_) never_held_.assign(world_.waiting().begin(), world_.waiting().end());
  stands_still_ = true;
  std::erase_if(never_held_, [&](int id) { return world_.would_hold(id); });
}

void Simulation::check_end() {
  for (int id = 0; id < std::ssize(world_.jobs()); ++id) {
    const JobState& s = world_.state(id);
    if (s.phase == Phase::kDone || s.phase == Phase::kWithdrawn) continue;
    if (stands_still_ && std::ranges::binary_search(never_held_, id)) continue;
    world_.violate(s.preemptions > 0 ? "returned" : "starved",
                   "job " + std::to_string(id) + " is " + name_of(s.phase) + " at the end");
  }
}

Results Simulation::collect(const SchedulingPolicy& policy) {
  Results r;
  r.policy = policy.name();
  r.digest = digest_;
  r.events = handled_;
  r.decisions = decisions_;
  if (stands_still_ && !never_held_.empty()) {
    const TraceJob& first = world_.job(never_held_.front());
    r.never_held = std::ssize(never_held_);
    r.never_held_example = "job " + std::to_string(never_held_.front()) + " wants " +
                           std::to_string(first.bytes / (kGiB / 10) / 10.0).substr(0, 5) +
                           " GiB on each of " + std::to_string(first.gpus) + " GPUs of one model";
  }
  std::map<std::string, std::vector<double>> waits;
  std::map<std::string, double> slowdowns, wholes;
  for (int id = 0; id < std::ssize(world_.jobs()); ++id) {
    const TraceJob& job = world_.job(id);
    const JobState& s = world_.state(id);
    r.withdrawn += s.phase == Phase::kWithdrawn;
    r.preemptions += s.preemptions;
    r.worker_losses += s.losses;
    if (s.phase != Phase::kDone) {
      r.left += s.phase != Phase::kWithdrawn;
      continue;
    }
    ++r.done;
    const double wait_s = static_cast<double>(s.waited_us) / kSecondUs;
    const double whole_s = static_cast<double>(s.end_us - job.arrive_us) / kSecondUs;
    const double alone_s =
        static_cast<double>(job.work_us) * job.ends_at * alone_factor(job) / kSecondUs;
    const double slowdown = std::max(1.0, whole_s / std::max(10.0, alone_s));
    std::vector<std::string> classes = {"all", class_of(job)};
    if (job.priority > 0) classes.emplace_back("urgent");
    for (const std::string& c : classes) {
      waits[c].push_back(wait_s);
      slowdowns[c] += slowdown;
      wholes[c] += whole_s;
    }
    r.makespan_hours = std::max(r.makespan_hours, static_cast<double>(s.end_us) / kHourUs);
  }
  for (auto& [name, values] : waits) {
    WaitFigures& f = r.waits[name];
    f.jobs = std::ssize(values);
    for (const double v : values) f.mean_s += v / static_cast<double>(values.size());
    f.p50_s = percentile(values, 0.5);
    f.p95_s = percentile(values, 0.95);
    f.p99_s = percentile(values, 0.99);
    f.max_s = percentile(values, 1);
    f.slowdown = slowdowns[name] / static_cast<double>(values.size());
    f.whole_s = wholes[name] / static_cast<double>(values.size());
  }
  const auto window = static_cast<double>(std::max<int64_t>(1, last_us_));
  const Cluster& cluster = world_.cluster();
  if (cluster.gpu_count > 0) {
    r.busy_share = busy_gpu_us_ / (window * cluster.gpu_count);
    r.work_share = work_us_ / (window * cluster.gpu_speed);
  }
  r.lost_share = had_gpu_us_ > 0 ? world_.lost_gpu_us() / had_gpu_us_ : 0;
  r.jain_hours = jain_hours_;
  r.jain = jain_hours_ > 0 ? jain_sum_ / static_cast<double>(jain_hours_) : 1;
  r.useless_preemptions = useless_preemptions_;
  r.decide_p50_ms = percentile(decide_ms_, 0.5);
  r.decide_p99_ms = percentile(decide_ms_, 0.99);
  r.decide_max_ms = percentile(decide_ms_, 1);
  r.index_p50_ms = percentile(index_ms_, 0.5);
  r.index_p99_ms = percentile(index_ms_, 0.99);
  r.waiting_max = waiting_max_;
  r.jobs_on_gpu_max = jobs_on_gpu_max_;
  r.violations = world_.violations();
  r.violation_counts = world_.violation_counts();
  return r;
}

std::string describe(const TraceJob& job) {
  std::ostringstream text;
  text << "arrives " << job.arrive_us << " us, owner " << job.owner << ", priority " << job.priority
       << ", wish " << static_cast<int>(job.wish) << ", gpus " << job.gpus << ", bytes "
       << job.bytes << ", cores " << job.cores << (job.exclusive ? ", exclusive" : "") << ", work "
       << job.work_us << " us";
  return text.str();
}

std::string Simulation::describe() const {
  std::ostringstream text;
  text << "at " << world_.now_us() << " us, after event " << handled_ << "\n";
  for (int id = 0; id < std::ssize(world_.jobs()); ++id) {
    const TraceJob& job = world_.job(id);
    const JobState& s = world_.state(id);
    if (s.phase == Phase::kComing || s.phase == Phase::kDone || s.phase == Phase::kWithdrawn)
      continue;
    text << "job " << id << ": " << name_of(s.phase) << ", " << sim::describe(job);
    if (s.retry_us > world_.now_us()) text << ", rests until " << s.retry_us;
    if (!s.devices.empty()) text << ", ends at " << world_.forecast_end_us(id) << ", on";
    for (const int d : s.devices) text << " " << world_.machine(d).device.name;
    text << "\n";
  }
  for (int d = 0; d < std::ssize(world_.machines()); ++d) {
    const DeviceState& state = world_.device(d);
    if (state.jobs.empty() && state.others_bytes == 0 && !state.failed) continue;
    text << world_.machine(d).device.name << ": planned " << state.planned_bytes << " of "
         << world_.machine(d).device.memory_bytes << ", others " << state.others_bytes
         << (state.failed ? ", failed" : "") << "\n";
  }
  return text.str();
}

std::vector<TraceJob> shrink(const Cluster& cluster, std::vector<TraceJob> jobs,
                             const SimulationOptions& options, const MakePolicy& make_policy,
                             const std::string& invariant) {
  const auto fails = [&](const std::vector<TraceJob>& some) {
    Simulation simulation(cluster, some, options);
    const std::unique_ptr<SchedulingPolicy> policy = make_policy(simulation.world());
    const Results results = simulation.run(*policy);
    return results.count(invariant) > 0;
  };
  for (size_t part = std::max<size_t>(1, jobs.size() / 2); part > 0; part /= 2) {
    for (size_t from = 0; from < jobs.size();) {
      std::vector<TraceJob> fewer = jobs;
      const auto begin = fewer.begin() + static_cast<long>(from);
      fewer.erase(begin, begin + static_cast<long>(std::min(part, jobs.size() - from)));
      if (!fewer.empty() && fails(fewer)) {
        jobs = std::move(fewer);
      } else {
        from += part;
      }
    }
  }
  return jobs;
}

}  // namespace trainyard::sim
