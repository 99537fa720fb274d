// Tests of arrays in the store. Reopening the store exposes promises that are kept in memory only
// and arrays that were only partly stored.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "server/store/array_rows.h"
#include "server/store/store_files.h"
#include "server/store/wait_for.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

class StoreArray : public ::testing::Test {
 protected:
  void reopen() {
    store.reset();
    store = open_or_die(options, clock);
  }
  ArrayStore& arrays() { return store->arrays(); }
  JobStore& jobs() { return store->jobs(); }

  static NewArray array_of(const std::string& id, int size) {
    NewArray array;
    array.project = "default";
    array.id = id;
    array.owner = "ada";
    array.spec = new_job().spec;
    auto& values = (*array.array.mutable_grid())["recipe.seed"];
    MemberShape& shape = array.shapes.emplace_back();
    v1::RunPlan plan;
    plan.set_steps_total(100);
    shape.plan = plan.SerializeAsString();
    for (int i = 0; i < size; ++i) {
      values.add_values(std::to_string(i));
      v1::JobSpec spec = array.spec;
      spec.mutable_recipe()->set_seed(static_cast<uint64_t>(i));
      v1::ArrayMember given;
      (*given.mutable_values())["recipe.seed"] = std::to_string(i);
      array.members.push_back({0, spec.SerializeAsString(), given.SerializeAsString(), i % 3});
    }
    return array;
  }
  JobArray submit(const std::string& id, int size) {
    Result<JobArray> array = answer_of(arrays(), &ArrayStore::submit, array_of(id, size));
    EXPECT_TRUE(array.ok()) << array.error().message;
    return array.ok() ? *array : JobArray();
  }
  Job get(const std::string& id) { return jobs().find("default", id).value(); }
  std::map<std::string, int64_t> states(const std::string& id) {
    std::map<std::string, int64_t> out;
    const Result<JobArray> array = arrays().find("default", id);
    EXPECT_TRUE(array.ok());
    if (!array.ok()) return out;
    for (const auto& [state, count] : array->states) out[std::string(name_of(state))] = count;
    return out;
  }
  /// Returns the counts of states() as computed from a list of the array's jobs.
  std::map<std::string, int64_t> counted(const std::string& id) {
    std::map<std::string, int64_t> out;
    for (const Job& job : list({.page_size = 1000, .array = id})) {
      ++out[std::string(name_of(job.state))];
    }
    return out;
  }
  struct Asked {
    int32_t page_size = 1000;
    std::vector<JobState> states = {};
    std::optional<std::string> owner = {};
    std::optional<std::string> array = {};
    bool no_members = false;
  };
  /// Reads all pages of a list.
  std::vector<Job> list(const Asked& asked) {
    JobQuery query;
    query.projects = {"default"};
    query.page_size = asked.page_size;
    query.states = asked.states;
    query.owner = asked.owner;
    query.array = asked.array;
    query.no_members = asked.no_members;
    std::vector<Job> all;
    do {
      const Result<JobPage> page = jobs().list(query);
      EXPECT_TRUE(page.ok()) << page.error().message;
      if (!page.ok()) break;
      EXPECT_LE(std::ssize(page->jobs), asked.page_size);
      all.insert(all.end(), page->jobs.begin(), page->jobs.end());
      query.page_token = page->next_page_token;
    } while (!query.page_token.empty());
    return all;
  }
  static std::vector<std::string> ids(const std::vector<Job>& jobs) {
    std::vector<std::string> out;
    for (const Job& job : jobs) out.push_back(job.id);
    return out;
  }
  Job start(const std::string& id) {
    return jobs()
        .start_attempt(get(id).uid, {"devices/cpu"}, "nonce", "DEVICE_ASSIGNED", "")
        .value();
  }
  void finish(const std::string& id, JobState to) {
    const Job job = start(id);
    AttemptUpdate started = update_of(job, 1);
    started.move = move_to(JobState::kRunning);
    EXPECT_TRUE(answer_of(jobs(), &JobStore::update_attempt, std::move(started)).ok());
    AttemptUpdate ended = update_of(job, 2);
    ended.move = move_to(to);
    EXPECT_TRUE(answer_of(jobs(), &JobStore::update_attempt, std::move(ended)).ok());
  }

  TemporaryDirectory directory;
  StoreOptions options = small_options(directory.path());
  FakeClock clock;
  std::unique_ptr<Store> store = open_or_die(options, clock);
};

TEST_F(StoreArray, MembersAreJobsWithTheirValuesAndSurviveAReopening) {
  const JobArray array = submit("sweep", 3);
  EXPECT_EQ(array.name(), "projects/default/arrays/sweep");
  EXPECT_EQ(array.size, 3);
  reopen();
  const Job job = get("sweep-2");
  EXPECT_EQ(job.state, JobState::kQueued);
  EXPECT_EQ(job.spec.recipe().seed(), 2u);
  EXPECT_EQ(job.priority, 2);
  EXPECT_EQ(job.owner, "ada");
  EXPECT_EQ(job.plan.steps_total(), 100);
  EXPECT_EQ(job.newest_seq, 1);
  EXPECT_EQ(job.reason, "WAITING_FOR_SCHEDULER");
  const v1::Job wire = to_proto(job);
  EXPECT_EQ(wire.array(), "projects/default/arrays/sweep");
  EXPECT_EQ(wire.array_index(), 2);
  EXPECT_EQ(wire.array_values().at("recipe.seed"), "2");
  std::vector<v1::Event> events;
  const auto visit = [&](int64_t, std::string_view bytes) {
    v1::Event& event = events.emplace_back();
    EXPECT_TRUE(event.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  };
  ASSERT_TRUE(jobs().visit_events(job.uid, 0, 10, 1 << 20, visit).ok());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].state().state(), v1::QUEUED);
  EXPECT_EQ(events[0].seq(), 1);
  const v1::JobArray stored = to_proto(arrays().find("default", "sweep").value());
  EXPECT_EQ(stored.array().grid().at("recipe.seed").values_size(), 3);
  EXPECT_FALSE(stored.has_end_time());
  EXPECT_EQ(states("sweep"), (std::map<std::string, int64_t>{{"QUEUED", 3}}));
}

TEST_F(StoreArray, TheSchedulerIsNotifiedOfEveryMember) {
  std::mutex mu;
  std::set<std::string> reported;
  store->observe([&](std::span<const JobChange> changes) {
    const std::lock_guard lock(mu);
    for (const JobChange& change : changes) {
      ASSERT_TRUE(change.reschedules.has_value());
      EXPECT_EQ(change.reschedules->uid, change.uid);
      EXPECT_GT(change.reschedules->order, 0);
      EXPECT_EQ(change.reschedules->owner, "ada");
      reported.insert(change.reschedules->id);
    }
  });
  submit("sweep", 5);
  std::set<std::string> read;
  ASSERT_TRUE(jobs().read_unfinished([&](const JobBrief& b) { read.insert(b.id); }).ok());
  const std::lock_guard lock(mu);
  EXPECT_EQ(reported.size(), 5u);
  EXPECT_EQ(reported, read) << "as a daemon that starts reads them";
}

TEST_F(StoreArray, AllMembersAreStoredOrNone) {
  options.queued_jobs_max = 10;
  reopen();
  ASSERT_TRUE(jobs().submit(new_job("mine-4")).ok());
  // Only the last member's name is already in use.
  EXPECT_EQ(answer_of(arrays(), &ArrayStore::submit, array_of("mine", 5)).error().reason,
            "JOB_EXISTS");
  EXPECT_NE(answer_of(arrays(), &ArrayStore::submit, array_of("mine", 5))
                .error()
                .message.find("'mine-4'"),
            std::string::npos);
  EXPECT_TRUE(answer_of(arrays(), &ArrayStore::submit, array_of("mine", 4)).ok())
      << "mine-4 is no member of four";
  EXPECT_EQ(answer_of(arrays(), &ArrayStore::submit, array_of("mine", 2)).error().reason,
            "ARRAY_EXISTS");
  const Error full = answer_of(arrays(), &ArrayStore::submit, array_of("many", 6)).error();
  EXPECT_EQ(full.reason, "QUEUED_JOBS_QUOTA_EXCEEDED");
  EXPECT_NE(full.message.find("would add 6"), std::string::npos) << full.message;
  EXPECT_EQ(answer_of(arrays(), &ArrayStore::submit, array_of("many", 5)).value().size, 5)
      << "5 are there";
  EXPECT_EQ(list({}).size(), 10u);
  NewArray gone = array_of("gone", 1);
  gone.shapes[0].initial_model_id = "none";
  options.queued_jobs_max = 100;
  reopen();
  EXPECT_EQ(answer_of(arrays(), &ArrayStore::submit, gone).error().reason, "MODEL_NOT_FOUND");
  gone.shapes[0].dataset = {"none", 1};
  EXPECT_EQ(answer_of(arrays(), &ArrayStore::submit, gone).error().reason, "DATASET_NOT_FOUND");
  EXPECT_EQ(list({}).size(), 10u);
  EXPECT_EQ(arrays().find("default", "gone").error().reason, "ARRAY_NOT_FOUND");
}

TEST_F(StoreArray, AJobCannotTakeAMembersName) {
  submit("sweep", 2);
  EXPECT_EQ(jobs().submit(new_job("sweep-1")).error().reason, "JOB_EXISTS");
  EXPECT_TRUE(jobs().submit(new_job("sweep-2")).ok());
  EXPECT_TRUE(jobs().submit(new_job("sweep")).ok()) << "arrays and jobs have names of their own";
  EXPECT_EQ(ids(list({.no_members = true})), (std::vector<std::string>{"sweep", "sweep-2"}));
}

TEST_F(StoreArray, ARepeatedRequestReturnsItsArray) {
  NewArray asked = array_of("", 3);
  asked.request_id = "7d444840-9dc0-11d1-b245-5ffdce74fad2";
  asked.request_digest = "one";
  const JobArray first = answer_of(arrays(), &ArrayStore::submit, asked).value();
  reopen();
  asked.refusal = make_error(ErrorCode::kResourceExhausted, "DISK_LOW", "full");
  EXPECT_EQ(answer_of(arrays(), &ArrayStore::submit, asked).value().uid, first.uid);
  EXPECT_EQ(arrays().find_request({"default", asked.request_id, "one"}).value()->uid, first.uid);
  EXPECT_EQ(list({}).size(), 3u);
  asked.request_digest = "two";
  EXPECT_EQ(answer_of(arrays(), &ArrayStore::submit, asked).error().reason, "REQUEST_ID_REUSED");
  ASSERT_TRUE(answer_of(arrays(), &ArrayStore::steer, "default", first.id, Steering::kCancel).ok());
  ASSERT_TRUE(arrays().remove_some("default", first.id).value().all);
  asked.request_digest = "one";
  EXPECT_EQ(answer_of(arrays(), &ArrayStore::submit, asked).error().reason, "ARRAY_NOT_FOUND");
  EXPECT_TRUE(list({}).empty());
}

TEST_F(StoreArray, CountsFollowTheStatesOfMembers) {
  submit("other", 2);
  submit("sweep", 6);
  finish("sweep-0", JobState::kSucceeded);
  finish("sweep-1", JobState::kFailed);
  start("sweep-2");
  ASSERT_TRUE(jobs().request_pause("default", "sweep-3").ok());
  ASSERT_TRUE(jobs().request_cancel("default", "sweep-4").ok());
  const std::map<std::string, int64_t> expected = {{"SUCCEEDED", 1}, {"FAILED", 1},
                                                   {"STARTING", 1},  {"PAUSED", 1},
                                                   {"QUEUED", 1},    {"CANCELLED", 1}};
  EXPECT_EQ(states("sweep"), expected);
  EXPECT_EQ(counted("sweep"), expected);
  EXPECT_EQ(states("other"), (std::map<std::string, int64_t>{{"QUEUED", 2}}));
  ASSERT_TRUE(jobs().remove("default", "sweep-0").ok());
  EXPECT_EQ(states("sweep").count("SUCCEEDED"), 0u);
}

TEST_F(StoreArray, ListsAreOfAnArrayOrOfJobsInNone) {
  ASSERT_TRUE(jobs().submit(new_job("first")).ok());
  submit("sweep", 7);
  ASSERT_TRUE(jobs().submit(new_job("last")).ok());
  NewJob adas = new_job("adas");
  adas.owner = "ada";
  ASSERT_TRUE(jobs().submit(adas).ok());
  for (const int32_t page : {1, 2, 3, 100}) {
    EXPECT_EQ(ids(list({.page_size = page, .no_members = true})),
              (std::vector<std::string>{"adas", "last", "first"}));
    EXPECT_EQ(ids(list({.page_size = page, .array = "sweep"})),
              (std::vector<std::string>{"sweep-6", "sweep-5", "sweep-4", "sweep-3", "sweep-2",
                                        "sweep-1", "sweep-0"}));
    EXPECT_EQ(ids(list({.page_size = page, .owner = "ada", .no_members = true})),
              std::vector<std::string>{"adas"});
    EXPECT_EQ(list({.page_size = page, .owner = "ada"}).size(), 8u);
    EXPECT_EQ(list({.page_size = page}).size(), 10u);
  }
  finish("sweep-3", JobState::kFailed);
  EXPECT_EQ(ids(list({.states = {JobState::kFailed}, .array = "sweep"})),
            std::vector<std::string>{"sweep-3"});
  EXPECT_TRUE(list({.owner = "eve", .array = "sweep"}).empty());
  JobQuery none;
  none.projects = {"default"};
  none.array = "none";
  EXPECT_EQ(jobs().list(none).error().reason, "ARRAY_NOT_FOUND");
  JobQuery paged;
  paged.projects = {"default"};
  paged.array = "sweep";
  paged.page_size = 1;
  const std::string token = jobs().list(paged).value().next_page_token;
  paged.array.reset();
  paged.page_token = token;
  EXPECT_EQ(jobs().list(paged).error().reason, "PAGE_TOKEN_INVALID") << "of another list";
}

TEST_F(StoreArray, ArraysAreListedNewestFirstInPages) {
  for (int i = 0; i < 5; ++i) submit("sweep" + std::to_string(i), 1 + i);
  std::vector<std::string> names;
  ArrayQuery query;
  query.project = "default";
  query.page_size = 2;
  do {
    const ArrayPage page = arrays().list(query).value();
    for (const JobArray& array : page.arrays) {
      names.push_back(array.id);
      EXPECT_EQ(array.states,
                (std::vector<std::pair<JobState, int64_t>>{{JobState::kQueued, array.size}}));
      EXPECT_EQ(array.spec.recipe().epochs(), 3);
    }
    query.page_token = page.next_page_token;
  } while (!query.page_token.empty());
  EXPECT_EQ(names, (std::vector<std::string>{"sweep4", "sweep3", "sweep2", "sweep1", "sweep0"}));
  query.page_token = "rubbish";
  EXPECT_EQ(arrays().list(query).error().reason, "PAGE_TOKEN_INVALID");
}

TEST_F(StoreArray, CancelAndPauseReachEveryActiveMember) {
  const int size = 2 * kMembersMax + 10;
  submit("other", 1);
  submit("sweep", size);
  finish("sweep-0", JobState::kSucceeded);
  finish("sweep-" + std::to_string(size - 1), JobState::kFailed);
  start("sweep-5");
  ASSERT_TRUE(jobs().request_cancel("default", "sweep-6").ok());

  ASSERT_TRUE(answer_of(arrays(), &ArrayStore::steer, "default", "sweep", Steering::kPause).ok());
  EXPECT_EQ(states("sweep"), (std::map<std::string, int64_t>{{"SUCCEEDED", 1},
                                                             {"FAILED", 1},
                                                             {"STARTING", 1},
                                                             {"CANCELLED", 1},
                                                             {"PAUSED", size - 4}}));
  EXPECT_TRUE(get("sweep-5").pause_requested);
  ASSERT_TRUE(answer_of(arrays(), &ArrayStore::steer, "default", "sweep", Steering::kPause).ok())
      << "idempotent";
  reopen();
  ASSERT_TRUE(answer_of(arrays(), &ArrayStore::steer, "default", "sweep", Steering::kResume).ok());
  EXPECT_EQ(states("sweep")["QUEUED"], size - 4);
  EXPECT_FALSE(get("sweep-5").pause_requested);

  const JobArray cancelled =
      answer_of(arrays(), &ArrayStore::steer, "default", "sweep", Steering::kCancel).value();
  EXPECT_FALSE(cancelled.has_ended()) << "one runs";
  EXPECT_EQ(states("sweep")["CANCELLED"], size - 3);
  EXPECT_TRUE(get("sweep-5").cancel_requested);
  EXPECT_EQ(states("other"), (std::map<std::string, int64_t>{{"QUEUED", 1}}));
  const Job stopped = get("sweep-5");
  AttemptUpdate ended = update_of(stopped);
  ended.move = move_to(JobState::kQueued);
  clock.pass(5'000'000);
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, std::move(ended)).ok());
  const JobArray array = arrays().find("default", "sweep").value();
  EXPECT_TRUE(array.has_ended());
  EXPECT_EQ(array.end_time_us, get("sweep-5").end_time_us);
  EXPECT_EQ(counted("sweep"), states("sweep"));
  EXPECT_EQ(
      answer_of(arrays(), &ArrayStore::steer, "default", "sweep", Steering::kPause).value().uid,
      array.uid);
  EXPECT_EQ(
      answer_of(arrays(), &ArrayStore::steer, "default", "none", Steering::kCancel).error().reason,
      "ARRAY_NOT_FOUND");
}

TEST_F(StoreArray, MembersAreCancelledAndPausedInOrder) {
  submit("sweep", 3);
  start("sweep-0");
  ASSERT_TRUE(answer_of(arrays(), &ArrayStore::steer, "default", "sweep", Steering::kCancel).ok());
  EXPECT_TRUE(get("sweep-0").cancel_requested);
  EXPECT_EQ(states("sweep")["CANCELLED"], 2);
}

TEST_F(StoreArray, OtherChangesAreWrittenBetweenMembers) {
  submit("sweep", 10 * static_cast<int>(kMembersMax));
  std::mutex mu;
  std::vector<std::string> order;
  std::promise<void> both;
  const auto note = [&](const char* what) {
    const std::lock_guard lock(mu);
    order.emplace_back(what);
    if (order.size() == 2) both.set_value();
  };
  arrays().steer("default", "sweep", Steering::kCancel, [&](const auto&) { note("array"); });
  jobs().submit(new_job("single"), [&](const auto&) { note("single"); });
  both.get_future().wait();
  EXPECT_EQ(order, (std::vector<std::string>{"single", "array"}));
}

// In one transaction, three arrays of 3,000 members would take 40 s, and the single job would wait
// for all of them.
TEST_F(StoreArray, ArraysSubmittedTogetherAreWrittenOneByOne) {
  std::promise<void> all;
  std::atomic<int> left = 4;
  const auto answered = [&](const auto& result) {
    EXPECT_TRUE(result.ok());
    if (--left == 0) all.set_value();
  };
  std::vector<NewArray> asked;
  for (int i = 0; i < 3; ++i) {
    NewArray& array = asked.emplace_back(array_of("sweep" + std::to_string(i), 3000));
    v1::RunPlan plan;
    plan.set_device_advice(std::string(1000, 'x'));
    array.shapes[0].plan = plan.SerializeAsString();
  }
  int before = 0;  // number of arrays stored before the single job
  for (NewArray& array : asked) arrays().submit(std::move(array), answered);
  jobs().submit(new_job("single"), [&](const auto& result) {
    before = 4 - left;
    answered(result);
  });
  all.get_future().wait();
  EXPECT_LE(before, 1) << "it waits for the one that is being stored";
}

TEST_F(StoreArray, ConcurrentPauseAndResumeBothEnd) {
  submit("sweep", 3 * static_cast<int>(kMembersMax));
  std::promise<void> paused, resumed;
  arrays().steer("default", "sweep", Steering::kPause, [&](const auto&) { paused.set_value(); });
  arrays().steer("default", "sweep", Steering::kResume, [&](const auto&) { resumed.set_value(); });
  paused.get_future().wait();
  resumed.get_future().wait();
}

TEST_F(StoreArray, TheArrayIsDeletedWithItsLastMember) {
  submit("sweep", 2);
  const Error unfinished = arrays().remove_some("default", "sweep").error();
  EXPECT_EQ(unfinished.reason, "JOB_STATE_CONFLICT");
  EXPECT_NE(unfinished.message.find("2 members of sweep are QUEUED"), std::string::npos);
  ASSERT_TRUE(answer_of(arrays(), &ArrayStore::steer, "default", "sweep", Steering::kCancel).ok());
  ASSERT_TRUE(jobs().remove("default", "sweep-0").ok());
  EXPECT_EQ(states("sweep"), (std::map<std::string, int64_t>{{"CANCELLED", 1}}));
  EXPECT_EQ(arrays().find("default", "sweep").value().size, 2);
  ASSERT_TRUE(jobs().remove("default", "sweep-1").ok());
  EXPECT_EQ(arrays().find("default", "sweep").error().reason, "ARRAY_NOT_FOUND");
  submit("sweep", 1);
}

TEST_F(StoreArray, ADeletionRemovesOnlyAndAllMembers) {
  const int size = static_cast<int>(kMembersMax) + 3;
  submit("sweep", size);
  submit("swee", 2);  // its name is a prefix of the other name
  ASSERT_TRUE(answer_of(arrays(), &ArrayStore::steer, "default", "sweep", Steering::kCancel).ok());
  const RemovedMembers first = arrays().remove_some("default", "sweep").value();
  EXPECT_FALSE(first.all);
  EXPECT_EQ(std::ssize(first.uids), kMembersMax);
  reopen();  // as after a restart in between: the remaining members are still an array
  const RemovedMembers rest = arrays().remove_some("default", "sweep").value();
  EXPECT_TRUE(rest.all);
  EXPECT_EQ(rest.uids.size(), 3u);
  EXPECT_EQ(std::ssize(store->removals().list().value()), size) << "whose files are to be removed";
  EXPECT_EQ(list({}).size(), 2u);
}

TEST_F(StoreArray, MembersWaitForOtherJobs) {
  ASSERT_TRUE(jobs().submit(new_job("first")).ok());
  NewArray asked = array_of("sweep", 3);
  asked.after = {{"first", false}};
  ASSERT_TRUE(answer_of(arrays(), &ArrayStore::submit, asked).ok());
  EXPECT_EQ(get("sweep-1").reason, "WAITING_FOR_JOB");
  EXPECT_EQ(get("sweep-1").waits_for, 1);
  finish("first", JobState::kSucceeded);
  EXPECT_EQ(get("sweep-1").waits_for, 0);
  EXPECT_EQ(get("sweep-1").state, JobState::kQueued);

  ASSERT_TRUE(jobs().submit(new_job("second")).ok());
  asked = array_of("waits", 2);
  asked.after = {{"second", false}};
  ASSERT_TRUE(answer_of(arrays(), &ArrayStore::submit, asked).ok());
  finish("second", JobState::kFailed);
  EXPECT_EQ(states("waits"), (std::map<std::string, int64_t>{{"CANCELLED", 2}}));
  EXPECT_EQ(get("waits-0").reason, kDependencyFailed);

  asked = array_of("many", 10'000);
  for (int i = 0; i < 3; ++i) {
    const std::string id = "awaited-" + std::to_string(i);
    ASSERT_TRUE(jobs().submit(new_job(id)).ok());
    asked.after.push_back({id, true});
  }
  const Error many = answer_of(arrays(), &ArrayStore::submit, asked).error();
  EXPECT_EQ(many.reason, "ARRAY_SIZE_INVALID");
  EXPECT_NE(many.message.find("30000 dependencies, expected at most 20000"), std::string::npos)
      << many.message;
}

}  // namespace
}  // namespace trainyard::server
