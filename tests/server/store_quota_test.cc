// Tests of the books of device use and of quotas in the store. A use that is lost, counted twice or
// put on the wrong day shows in the sums; a quota that is not checked inside the transaction of a
// submission shows when many submit at once.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "server/store/quota_rows.h"
#include "server/store/wait_for.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

constexpr int64_t kHour = kQuotaHourUs;
constexpr int64_t kDay = kQuotaDayUs;
constexpr int64_t kToday = 20'000 * kDay;  // the start of a day

class StoreQuota : public ::testing::Test {
 protected:
  StoreQuota() {
    clock.set_wall(kToday);
    open();
  }
  void open() {
    store.reset();
    StoreOptions options = small_options(directory.path());
    options.prices = {{"gpu", 2.0}};
    store = open_or_die(options, clock);
  }
  JobStore& jobs() { return store->jobs(); }
  QuotaStore& quotas() { return store->quotas(); }

  static NewJob job_of(const std::string& id, const std::string& owner) {
    NewJob job = new_job(id);
    job.owner = owner;
    return job;
  }
  /// Adds a forecast of this length on one GPU or on the CPU.
  static NewJob with_forecast(NewJob job, const std::string& device, double hours) {
    v1::Forecast& forecast = *job.plan.add_forecasts();
    forecast.set_device(device);
    forecast.set_total_seconds(hours * 3600);
    forecast.set_total_seconds_low(hours * 3600);
    forecast.set_total_seconds_high(hours * 3600);
    return job;
  }
  Job start(NewJob asked, const std::vector<std::string>& devices) {
    const Job job = jobs().submit(std::move(asked)).value();
    return jobs().start_attempt(job.uid, devices, "n", "R", "").value();
  }
  void run(const Job& job) {
    AttemptUpdate started = update_of(job, 1);
    started.move = move_to(JobState::kRunning);
    ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, std::move(started)).ok());
  }
  Result<Job> end(const Job& job, JobState to = JobState::kQueued, bool unseen = false) {
    AttemptUpdate ended = update_of(job);
    ended.move = move_to(to);
    ended.move->unseen = unseen;
    return answer_of(jobs(), &JobStore::update_attempt, std::move(ended));
  }
  std::vector<DeviceUse> uses() {
    const int64_t today = clock.wall_us() / kDay;
    return quotas().device_uses(today - 60, today + 1, clock.wall_us()).value();
  }
  void set(QuotaKind kind, const std::string& project, const std::string& person, int64_t max) {
    ASSERT_TRUE(quotas().set({kind, {project, person}, max}).ok());
  }
  DeviceQuota device_quota() { return quotas().device_quotas(clock.wall_us()).value().at(0); }

  TemporaryDirectory directory;
  FakeClock clock;
  std::unique_ptr<Store> store;
};

TEST_F(StoreQuota, AnAttemptIsReservedAtItsStartAndSettledByFact) {
  const NewJob asked = with_forecast(job_of("a", "ada"), "devices/gpu-0", 5);
  const Job job = start(asked, {"devices/gpu-0", "devices/gpu-1"});
  run(job);
  clock.pass(kHour);
  ASSERT_EQ(uses().size(), 1u);
  DeviceUse use = uses()[0];
  EXPECT_EQ(use.project, "default");
  EXPECT_EQ(use.person, "ada");
  EXPECT_EQ(use.device_kind, "gpu");
  EXPECT_EQ(use.day, kToday / kDay);
  EXPECT_EQ(use.device_us, 2 * kHour) << "two devices for an hour so far";
  EXPECT_EQ(use.reserved_us, 8 * kHour) << "the rest of two devices for five hours";
  EXPECT_DOUBLE_EQ(use.cost, 4.0);
  open();  // a reservation outlives the daemon
  clock.pass(kHour);
  ASSERT_TRUE(end(job).ok());
  ASSERT_FALSE(end(job).ok()) << "an attempt ends once";
  ASSERT_EQ(uses().size(), 1u);
  use = uses()[0];
  EXPECT_EQ(use.device_us, 4 * kHour);
  EXPECT_EQ(use.reserved_us, 0);
  EXPECT_DOUBLE_EQ(use.cost, 8.0);
  EXPECT_EQ(use.priced_us, use.device_us);
  EXPECT_EQ(use.metered_us, 0);
  ASSERT_TRUE(jobs().request_cancel("default", "a").ok());
  ASSERT_TRUE(jobs().remove("default", "a").ok());
  open();
  EXPECT_EQ(uses().at(0).device_us, 4 * kHour) << "the books outlive the job";
}

TEST_F(StoreQuota, UseIsSplitAtMidnightAndByKindOfDevice) {
  clock.pass(22 * kHour);
  const Job on_cpu = start(job_of("a", "ada"), {"devices/cpu"});
  NewJob away = job_of("b", "ada");
  away.spec.mutable_resources()->set_cluster("slurm");
  away.spec.mutable_resources()->set_device(v1::Resources::GPU);
  away.spec.mutable_resources()->set_gpus(4);
  away.spec.mutable_resources()->set_nodes(2);
  const Job on_cluster = start(away, {"clusters/slurm"});
  clock.pass(27 * kHour);
  ASSERT_TRUE(end(on_cpu).ok());
  ASSERT_TRUE(end(on_cluster).ok());
  const std::vector<DeviceUse> all = uses();
  ASSERT_EQ(all.size(), 6u) << "three days of two kinds";
  const std::vector<int64_t> hours{2, 24, 1};
  for (size_t day = 0; day < 3; ++day) {
    const DeviceUse& cluster = all[2 * day];
    const DeviceUse& cpu = all[2 * day + 1];
    EXPECT_EQ(cluster.device_kind, "clusters/slurm");
    EXPECT_EQ(cluster.device_us, 8 * hours[day] * kHour) << "four GPUs on each of two nodes";
    EXPECT_EQ(cpu.device_kind, "cpu");
    EXPECT_EQ(cpu.day, kToday / kDay + static_cast<int64_t>(day));
    EXPECT_EQ(cpu.device_us, hours[day] * kHour);
    EXPECT_EQ(cpu.priced_us, 0) << "the CPU has no price";
  }
}

TEST_F(StoreQuota, AnEndThatNobodySawCountsUntilTheWorkersLastReport) {
  const Job job = start(job_of("a", "ada"), {"devices/cpu"});
  run(job);
  clock.pass(kHour);
  AttemptUpdate log = update_of(job, 2);
  log.events.push_back(log_event("alive"));
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, std::move(log)).ok());
  clock.pass(20 * kHour);  // the machine was off
  ASSERT_TRUE(end(job, JobState::kQueued, /*unseen=*/true).ok());
  EXPECT_EQ(uses().at(0).device_us, kHour);
}

TEST_F(StoreQuota, MeasuredEnergyIsAddedToTheDaysOfAnAttemptThatHadItsDevicesAlone) {
  clock.pass(23 * kHour);
  const Job alone = start(job_of("alone", "ada"), {"devices/gpu-0", "devices/gpu-1"});
  clock.pass(4 * kHour);
  const auto add = [&](const Job& job, double joules) {
    return wait_for<void>([&](Done<void> done) {
      quotas().add_energy(job.uid, job.attempt, joules, std::move(done));
    });
  };
  ASSERT_TRUE(add(alone, 77).ok());  // it still runs
  ASSERT_TRUE(end(alone).ok());
  ASSERT_TRUE(add(alone, 4000).ok());
  std::vector<DeviceUse> all = uses();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_DOUBLE_EQ(all[0].energy_joules, 1000);
  EXPECT_DOUBLE_EQ(all[1].energy_joules, 3000);
  EXPECT_EQ(all[1].metered_us, 6 * kHour);
  const Job shared = start(job_of("shared", "ada"), {"devices/gpu-0"});
  ASSERT_TRUE(wait_for<void>([&](Done<void> done) {
                jobs().note_shared({shared.uid}, std::move(done));
              }).ok());
  clock.pass(kHour);
  ASSERT_TRUE(end(shared).ok());
  ASSERT_TRUE(add(shared, 500).ok());
  all = uses();
  EXPECT_DOUBLE_EQ(all[1].energy_joules, 3000);
  EXPECT_LT(all[1].metered_us, all[1].device_us);
}

TEST_F(StoreQuota, FairShareReadsTheSameBooks) {
  ASSERT_TRUE(jobs().keep_uses(kDay).ok());
  const Job job = start(job_of("a", "ada"), {"devices/gpu-0", "devices/gpu-1"});
  ASSERT_EQ(jobs().uses()->running.size(), 1u);
  EXPECT_EQ(jobs().uses()->running[0].owner, "ada");
  EXPECT_EQ(jobs().uses()->running[0].devices, 2);
  EXPECT_EQ(jobs().uses()->running[0].start_us, kToday);
  clock.pass(kHour);
  ASSERT_TRUE(end(job).ok());
  EXPECT_TRUE(jobs().uses()->running.empty());
  const double decayed = use_after(0, 2, kHour, kDay);
  EXPECT_NEAR(jobs().uses()->past.at(0).used, decayed, 1e-6);
  EXPECT_EQ(uses().at(0).device_us, 2 * kHour);
}

TEST_F(StoreQuota, QueuedJobsAreBoundedForProjectPersonAndBoth) {
  set(QuotaKind::kQueuedJobs, "default", "", 4);
  set(QuotaKind::kQueuedJobs, "", "ada", 2);
  set(QuotaKind::kQueuedJobs, "default", "bob", 0);
  ASSERT_TRUE(jobs().submit(job_of("a-1", "ada")).ok());
  ASSERT_TRUE(jobs().submit(job_of("a-2", "ada")).ok());
  const Result<Job> third = jobs().submit(job_of("a-3", "ada"));
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(third.error().reason, "QUOTA_EXCEEDED");
  EXPECT_EQ(third.error().metadata.at("quota"), "queued_jobs");
  EXPECT_EQ(third.error().metadata.at("scope"), "ada");
  EXPECT_EQ(third.error().metadata.at("limit"), "2");
  EXPECT_EQ(third.error().metadata.at("used"), "2");
  EXPECT_EQ(
      third.error().message,
      "the quota queued_jobs of ada is 2 queued jobs; 2 queued jobs are used, and this needs 1 "
      "queued job more; room comes when jobs start, end or are cancelled.");
  EXPECT_EQ(jobs().submit(job_of("b-1", "bob")).error().metadata.at("scope"),
            "bob in projects/default");
  ASSERT_TRUE(jobs().request_pause("default", "a-1").ok());
  EXPECT_FALSE(jobs().submit(job_of("a-3", "ada")).ok()) << "a paused job comes back";
  ASSERT_TRUE(jobs().request_cancel("default", "a-1").ok());
  EXPECT_TRUE(jobs().submit(job_of("a-3", "ada")).ok());
  ASSERT_TRUE(jobs().submit(job_of("c-1", "cleo")).ok());
  ASSERT_TRUE(jobs().submit(job_of("c-2", "cleo")).ok());
  EXPECT_EQ(jobs().submit(job_of("c-3", "cleo")).error().metadata.at("scope"), "projects/default");
  ASSERT_TRUE(quotas().remove(QuotaKind::kQueuedJobs, {"default", ""}).ok());
  EXPECT_EQ(quotas().remove(QuotaKind::kQueuedJobs, {"default", ""}).error().reason,
            "QUOTA_NOT_FOUND");
  EXPECT_TRUE(jobs().submit(job_of("c-3", "cleo")).ok());
}

TEST_F(StoreQuota, EachMemberOfAnArrayCounts) {
  set(QuotaKind::kQueuedJobs, "default", "", 4);
  NewArray array;
  array.project = "default";
  array.id = "sweep";
  array.owner = "ada";
  array.shapes.resize(1);
  array.members.resize(5);
  const auto submit = [&] {
    return wait_for<JobArray>(
        [&](Done<JobArray> done) { store->arrays().submit(array, std::move(done)); });
  };
  EXPECT_EQ(submit().error().reason, "QUOTA_EXCEEDED");
  EXPECT_EQ(jobs().count()->queued, 0) << "none or all";
  array.members.resize(4);
  EXPECT_TRUE(submit().ok());
  EXPECT_EQ(jobs().submit(job_of("one", "ada")).error().reason, "QUOTA_EXCEEDED");
}

TEST_F(StoreQuota, ConcurrentSubmitsCannotExceedAQuota) {
  constexpr int kThreads = 8, kEach = 20, kMax = 30;
  set(QuotaKind::kQueuedJobs, "", "ada", kMax);
  std::atomic<int> accepted = 0, refused = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) {
          const Result<Job> job = jobs().submit(job_of("", "ada"));
          if (job.ok()) {
            ++accepted;
          } else if (job.error().reason == "QUOTA_EXCEEDED") {
            ++refused;
          }
        }
      });
    }
  }
  EXPECT_EQ(accepted, kMax);
  EXPECT_EQ(refused, kThreads * kEach - kMax);
  EXPECT_EQ(jobs().count()->queued, kMax);
}

TEST_F(StoreQuota, AJobThatCanNeverStartIsRefusedAndOthersAreAccepted) {
  set(QuotaKind::kDevices, "default", "", 2);
  set(QuotaKind::kDeviceHours, "", "ada", 10);
  NewJob wide = job_of("wide", "bob");
  wide.spec.mutable_resources()->set_device(v1::Resources::GPU);
  wide.spec.mutable_resources()->set_gpus(3);
  const Result<Job> refused = jobs().submit(wide);
  EXPECT_EQ(refused.error().metadata.at("quota"), "devices");
  wide.spec.mutable_resources()->set_gpus(2);
  EXPECT_TRUE(jobs().submit(wide).ok());
  const Result<Job> too_long =
      jobs().submit(with_forecast(job_of("long", "ada"), "devices/gpu-0", 11));
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().metadata.at("quota"), "device_hours");
  EXPECT_NE(
      too_long.error().message.find("10 device-hours; 0 device-hours are used, and this needs "
                                    "11 device-hours more"),
      std::string::npos)
      << too_long.error().message;
  EXPECT_TRUE(jobs().submit(with_forecast(job_of("fits", "ada"), "devices/gpu-0", 9)).ok());
  EXPECT_TRUE(jobs().submit(with_forecast(job_of("later", "ada"), "devices/gpu-0", 9)).ok())
      << "it waits for the quota instead";
  NewJob limited = job_of("limited", "ada");
  limited.spec.mutable_resources()->set_time_limit_seconds(11 * 3600);
  EXPECT_EQ(jobs().submit(limited).error().metadata.at("quota"), "device_hours");
}

TEST_F(StoreQuota, DeviceHoursCountThirtyDaysAndReservations) {
  EXPECT_TRUE(quotas().device_quotas(clock.wall_us())->empty());
  set(QuotaKind::kDeviceHours, "default", "ada", 100);
  const Job first = start(job_of("first", "ada"), {"devices/cpu"});
  clock.pass(3 * kHour);
  ASSERT_TRUE(end(first).ok());
  const Job other = start(job_of("other", "bob"), {"devices/cpu"});
  const Job second =
      start(with_forecast(job_of("second", "ada"), "devices/gpu-0", 5), {"devices/gpu-0"});
  DeviceQuota quota = device_quota();
  EXPECT_EQ(quota.max, 100 * kHour);
  EXPECT_EQ(quota.used, 8 * kHour) << "three by fact, five by forecast";
  clock.pass(7 * kHour);
  EXPECT_EQ(device_quota().used, 10 * kHour) << "longer than its forecast";
  ASSERT_TRUE(end(second).ok());
  quota = device_quota();
  EXPECT_EQ(quota.used, 10 * kHour);
  ASSERT_EQ(quota.ends.size(), 1u);
  EXPECT_EQ(quota.ends[0].time_us, kToday + 30 * kDay) << "when the day leaves the window";
  EXPECT_EQ(quota.ends[0].amount, 10 * kHour);
  clock.set_wall(kToday + 30 * kDay - 1);
  EXPECT_EQ(device_quota().used, 10 * kHour);
  clock.set_wall(kToday + 30 * kDay);
  EXPECT_EQ(device_quota().used, 0);
  open();
  EXPECT_EQ(device_quota().max, 100 * kHour) << "a quota outlives the daemon";
}

TEST_F(StoreQuota, DevicesCountThoseOfActiveJobsAndWhenTheyAreExpectedBack) {
  set(QuotaKind::kDevices, "", "ada", 4);
  const Job job = start(with_forecast(job_of("a", "ada"), "devices/gpu-0", 2),
                        {"devices/gpu-0", "devices/gpu-1"});
  (void)start(job_of("b", "ada"), {"devices/cpu"});
  const DeviceQuota quota = device_quota();
  EXPECT_EQ(quota.used, 3);
  ASSERT_EQ(quota.ends.size(), 1u) << "only one has a forecast";
  EXPECT_EQ(quota.ends[0].time_us, kToday + 2 * kHour);
  EXPECT_EQ(quota.ends[0].amount, 2);
  ASSERT_TRUE(end(job, JobState::kFailed).ok());
  EXPECT_EQ(device_quota().used, 1);
}

TEST_F(StoreQuota, StoredBytesRefuseUploadsAndSubmissionsButNeverATrainedModel) {
  const UploadKey file{"default", std::string(64, 'a'), 600};
  ASSERT_TRUE(store->uploads().begin(file).ok());
  set(QuotaKind::kStoredBytes, "default", "", 1000);
  set(QuotaKind::kStoredBytes, "", "ada", 300);
  UploadKey other = file;
  other.sha256 = std::string(64, 'b');
  const Result<Upload> refused = store->uploads().begin(other);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "QUOTA_EXCEEDED");
  EXPECT_EQ(refused.error().metadata.at("quota"), "stored_bytes");
  EXPECT_EQ(refused.error().metadata.at("used"), "600") << "an incomplete upload is reserved";
  EXPECT_TRUE(store->uploads().begin(file).ok()) << "the one that has begun goes on";
  other.size_bytes = 400;
  EXPECT_TRUE(store->uploads().begin(other).ok());

  const Job job = start(job_of("makes-a-model", "ada"), {"devices/cpu"});
  run(job);
  AttemptUpdate done = update_of(job, 2);
  done.move = move_to(JobState::kSucceeded);
  done.model = NewModel{"d", 500, 1, {}};
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, std::move(done)).ok());
  EXPECT_TRUE(store->models().find("default", "makes-a-model").ok()) << "beyond both quotas";
  const Result<Job> next = jobs().submit(job_of("next", "bob"));
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().metadata.at("scope"), "projects/default");
  EXPECT_EQ(next.error().metadata.at("used"), "1500");
  set(QuotaKind::kStoredBytes, "default", "", 5000);
  EXPECT_TRUE(jobs().submit(job_of("next", "bob")).ok());
  EXPECT_EQ(jobs().submit(job_of("after", "ada")).error().metadata.at("scope"), "ada");
  NewDataset data;
  data.project = "default";
  data.id = "digits";
  data.digest = "x";
  data.owner = "ada";
  EXPECT_EQ(store->datasets().create(data).error().reason, "QUOTA_EXCEEDED");
  ASSERT_TRUE(store->models().remove("default", "makes-a-model").ok());
  EXPECT_TRUE(store->datasets().create(data).ok());
  EXPECT_TRUE(jobs().submit(job_of("after", "ada")).ok());
}

TEST_F(StoreQuota, AListHasWhatIsUsedAndGoesOnAtItsPageToken) {
  for (int i = 0; i < 5; ++i) set(QuotaKind::kQueuedJobs, "", "p" + std::to_string(i), i);
  ASSERT_TRUE(jobs().submit(job_of("x", "p4")).ok());
  const auto visible = [](const Quota& quota) { return quota.scope.person != "p1"; };
  QuotaStore::Page page = quotas().list_page(visible, 2, "", clock.wall_us()).value();
  ASSERT_EQ(page.quotas.size(), 2u);
  EXPECT_EQ(page.quotas[0].quota.scope.person, "p0");
  EXPECT_EQ(page.quotas[1].quota.scope.person, "p2");
  page = quotas().list_page(visible, 2, page.next_page_token, clock.wall_us()).value();
  ASSERT_EQ(page.quotas.size(), 2u);
  EXPECT_EQ(page.quotas[1].quota.scope.person, "p4");
  EXPECT_EQ(page.quotas[1].used, 1);
  EXPECT_TRUE(page.next_page_token.empty());
  EXPECT_EQ(quotas().list_page(visible, 2, "forged", 0).error().reason, "PAGE_TOKEN_INVALID");
}

}  // namespace
}  // namespace trainyard::server
