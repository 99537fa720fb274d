// Tests of arrays through the whole daemon: refusals and their texts, the members' specs, and
// commands to all members at the same time.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "server/planning/digest.h"
#include "tests/server/service_support.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

class ServiceArray : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    make_dataset();
  }

  static v1::SubmitArrayRequest array_request(const std::string& id) {
    v1::SubmitArrayRequest request;
    request.set_array_id(id);
    *request.mutable_spec() = job_request("", "").spec();
    return request;
  }
  static void add(v1::SubmitArrayRequest& request, const std::string& path,
                  const std::vector<std::string>& values) {
    auto& grid = (*request.mutable_array()->mutable_grid())[path];
    for (const std::string& value : values) grid.add_values(value);
  }
  static std::vector<std::string> numbers(int count, int from = 0) {
    std::vector<std::string> out;
    for (int i = 0; i < count; ++i) out.push_back(std::to_string(from + i));
    return out;
  }
  grpc::Status submit_array(const v1::SubmitArrayRequest& request, v1::JobArray* array) {
    auto c = context();
    c->set_deadline(std::chrono::system_clock::now() + patience());
    return jobs_->SubmitArray(c.get(), request, array);
  }
  v1::JobArray submitted(const v1::SubmitArrayRequest& request) {
    v1::JobArray array;
    const grpc::Status s = submit_array(request, &array);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return array;
  }
  /// Submits and returns the refusal's message. Checks its reason and that nothing was stored.
  std::string refused(const v1::SubmitArrayRequest& request, const std::string& reason) {
    v1::JobArray array;
    const grpc::Status s = submit_array(request, &array);
    EXPECT_EQ(reason_of(s), reason) << s.error_message();
    EXPECT_EQ(list({}).jobs_size(), 0);
    return s.error_message();
  }
  v1::ListJobsResponse list(const v1::ListJobsRequest& request) {
    v1::ListJobsResponse response;
    const grpc::Status s = jobs_->ListJobs(context().get(), request, &response);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return response;
  }
  v1::JobArray get_array(const std::string& id) {
    v1::GetArrayRequest request;
    request.set_name("projects/default/arrays/" + id);
    v1::JobArray array;
    const grpc::Status s = jobs_->GetArray(context().get(), request, &array);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return array;
  }
  static std::map<v1::JobState, int> states_of(const v1::JobArray& array) {
    std::map<v1::JobState, int> out;
    for (const auto& count : array.states()) out[count.state()] = count.count();
    return out;
  }
  bool ends(const std::string& id) {
    return eventually([&] { return get_array(id).has_end_time(); });
  }
};

TEST_F(ServiceArray, MembersTrainLikeAnyJob) {
  v1::SubmitArrayRequest request = array_request("sweep");
  add(request, "recipe.optimizer.learning_rate", {"0.1", "0.2"});
  add(request, "model.mlp.hidden", {"[4]", "[5, 6]", "7"});
  const v1::JobArray array = submitted(request);
  EXPECT_EQ(array.name(), "projects/default/arrays/sweep");
  EXPECT_EQ(array.size(), 6);
  EXPECT_EQ(array.spec().dataset().name(), "iris") << "as given";
  EXPECT_EQ(states_of(array), (std::map<v1::JobState, int>{{v1::QUEUED, 6}}));
  EXPECT_TRUE(ends("sweep"));
  EXPECT_EQ(states_of(get_array("sweep")), (std::map<v1::JobState, int>{{v1::SUCCEEDED, 6}}));
  const v1::Job job = get("sweep-3");
  EXPECT_EQ(job.spec().model().mlp().hidden_size(), 2);
  EXPECT_EQ(job.spec().recipe().optimizer().learning_rate(), 0.2);
  EXPECT_EQ(job.spec().dataset().name(), "projects/default/datasets/iris@1");
  EXPECT_EQ(job.array(), array.name());
  EXPECT_EQ(job.array_index(), 3);
  EXPECT_EQ(job.array_values().at("model.mlp.hidden"), "[5, 6]");
  EXPECT_EQ(job.owner(), array.owner());
  EXPECT_EQ(job.model(), "projects/default/models/sweep-3");

  submit("single", "");
  v1::ListJobsRequest asked;
  asked.set_array("sweep");
  EXPECT_EQ(list(asked).jobs_size(), 6);
  asked.set_array("projects/default/arrays/sweep");
  asked.add_states(v1::FAILED);
  EXPECT_EQ(list(asked).jobs_size(), 0);
  asked.set_no_members(true);
  v1::ListJobsResponse response;
  EXPECT_EQ(reason_of(jobs_->ListJobs(context().get(), asked, &response)), "FIELD_CONFLICT");
  v1::ListJobsRequest singles;
  singles.set_no_members(true);
  ASSERT_EQ(list(singles).jobs_size(), 1);
  EXPECT_EQ(list(singles).jobs(0).name(), "projects/default/jobs/single");
  v1::ListArraysResponse arrays;
  ASSERT_TRUE(jobs_->ListArrays(context().get(), {}, &arrays).ok());
  ASSERT_EQ(arrays.arrays_size(), 1);
  EXPECT_EQ(arrays.arrays(0).size(), 6);
}

TEST_F(ServiceArray, AMemberIsPlannedAsTheSameSpecAlone) {
  // If a field in this list influenced the plan, members would share a wrong plan.
  inventory_->set({{}, "no device"});  // no job starts, so no worker adds to a plan
  const std::vector<std::pair<std::string, std::vector<std::string>>> fields = {
      {"recipe.seed", {"0", "1", "77", "4000000000"}},
      {"recipe.optimizer.learning_rate", {"1e-5", "0.1", "1", "3"}},
      {"recipe.optimizer.momentum", {"0", "0.5", "0.99"}},
      {"recipe.optimizer.weight_decay", {"0", "0.1", "1", "2"}},
      {"recipe.clip_gradients.norm", {"0.1", "1", "5"}},
      {"recipe.ema.decay", {"0.5", "0.9"}},
      {"labels.note", {"\"a\"", "\"b\""}},
      {"priority", {"-5", "0", "7"}},
      {"recipe.batch_size", {"5", "10"}},
      {"recipe.optimizer.type", {"\"sgd\"", "\"adam\"", "\"muon\""}}};
  for (const auto& [path, values] : fields) {
    SCOPED_TRACE(path);
    std::string id = "array" + path;
    std::erase_if(id, [](char c) { return c == '.' || c == '_'; });
    v1::SubmitArrayRequest request = array_request(id);
    add(request, path, values);
    submitted(request);
    for (size_t i = 0; i < values.size(); ++i) {
      v1::Job member = get(id + "-" + std::to_string(i));
      v1::SubmitJobRequest alone;
      *alone.mutable_spec() = member.spec();
      alone.set_validate_only(true);
      v1::Job same;
      ASSERT_TRUE(submit(alone, &same).ok());
      EXPECT_EQ(digest_of(same.spec()), digest_of(member.spec())) << values[i];
      v1::RunPlan mine = member.plan();
      v1::RunPlan other = same.plan();
      mine.clear_forecasts();  // forecasts depend on the time at which they were made
      other.clear_forecasts();
      EXPECT_EQ(digest_of(mine), digest_of(other)) << values[i];
    }
  }
}

TEST_F(ServiceArray, RefusalsNameTheMemberAndItsValue) {
  v1::SubmitArrayRequest request = array_request("sweep");
  EXPECT_NE(refused(request, "FIELD_REQUIRED").find("array: is missing"), std::string::npos);
  add(request, "recipe.optimizer.learning_rate", {"0.1", "-1"});
  add(request, "recipe.seed", {"5", "6"});
  EXPECT_EQ(refused(request, "FIELD_OUT_OF_RANGE"),
            "member 2 (recipe.optimizer.learning_rate: -1, recipe.seed: 5): "
            "recipe.optimizer.learning_rate: -1 is out of range, expected more than 0 and at most "
            "1e6");
  request = array_request("sweep");
  add(request, "model.mlp.hidden", {"[4]", "\"four\""});
  EXPECT_NE(
      refused(request, "FIELD_TYPE_INVALID")
          .find("member 1 (model.mlp.hidden: \"four\"): array.grid.model.mlp.hidden[1]: 'four' "
                "(text), expected a whole number"),
      std::string::npos);
  request = array_request("sweep");
  add(request, "recipe.seed", numbers(10));
  add(request, "recipe.batch_size", numbers(1'000, 1));
  add(request, "recipe.epochs", numbers(1'000, 1));
  EXPECT_NE(refused(request, "ARRAY_SIZE_INVALID").find("10000000 members"), std::string::npos);
  request = array_request("sweep");
  add(request, "recipe.epochs", numbers(1'001, 1));
  const std::string plans = refused(request, "ARRAY_PLANS_TOO_MANY");
  EXPECT_NE(plans.find("(recipe.epochs): 1001 plans, expected at most 1000"), std::string::npos)
      << plans;
  request = array_request("sweep");
  add(request, "labels.note", numbers(2));
  EXPECT_NE(refused(request, "FIELD_TYPE_INVALID").find("array.grid.labels.note[0]"),
            std::string::npos);
  request = array_request("sweep");
  (*request.mutable_spec()->mutable_labels())["long"] = std::string(250, 'x');
  for (int i = 0; i < 31; ++i) {
    (*request.mutable_spec()->mutable_labels())["key" + std::to_string(i)] = std::string(256, 'y');
  }
  add(request, "recipe.seed", numbers(10'000));
  EXPECT_NE(refused(request, "ARRAY_SIZE_INVALID").find("64 MiB"), std::string::npos);
  request = array_request(std::string(58, 'a'));
  add(request, "recipe.seed", {"1"});
  EXPECT_NE(refused(request, "NAME_MALFORMED").find("1 to 57 characters"), std::string::npos);
  request = array_request("sweep");
  add(request, "recipe.seed", {"1"});
  request.mutable_spec()->mutable_dataset()->set_name("none");
  EXPECT_NE(refused(request, "DATASET_NOT_FOUND").find("member 0"), std::string::npos);
}

TEST_F(ServiceArray, ValidateOnlyStoresNothing) {
  v1::SubmitArrayRequest request = array_request("sweep");
  add(request, "recipe.seed", numbers(3));
  request.set_validate_only(true);
  const v1::JobArray array = submitted(request);
  EXPECT_EQ(array.size(), 3);
  EXPECT_EQ(array.uid(), "");
  EXPECT_EQ(list({}).jobs_size(), 0);
}

TEST_F(ServiceArray, ARepeatedRequestReturnsTheSameArrayAlsoAfterARestart) {
  v1::SubmitArrayRequest request = array_request("");
  add(request, "recipe.seed", numbers(3));
  request.set_request_id("7d444840-9dc0-11d1-b245-5ffdce74fad2");
  const v1::JobArray first = submitted(request);
  EXPECT_TRUE(first.name().starts_with("projects/default/arrays/a-")) << first.name();
  stop();
  start();
  EXPECT_EQ(submitted(request).uid(), first.uid());
  EXPECT_EQ(list({}).jobs_size(), 3);
  add(request, "recipe.seed", {"9"});
  v1::JobArray other;
  EXPECT_EQ(reason_of(submit_array(request, &other)), "REQUEST_ID_REUSED");
}

TEST_F(ServiceArray, MembersAreCancelledPausedAndDeletedAsOne) {
  v1::SubmitArrayRequest request = array_request("sweep");
  (*request.mutable_spec()->mutable_labels())["act"] = "wait_for_stop";
  add(request, "recipe.seed", numbers(300));
  submitted(request);
  ASSERT_TRUE(eventually([&] { return states_of(get_array("sweep"))[v1::RUNNING] > 0; }));
  v1::PauseArrayRequest pause;
  pause.set_name("projects/default/arrays/sweep");
  v1::JobArray array;
  ASSERT_TRUE(jobs_->PauseArray(context().get(), pause, &array).ok());
  EXPECT_GE(states_of(array)[v1::PAUSED], 300 - config_.cpu_slots);
  ASSERT_TRUE(eventually([&] { return states_of(get_array("sweep"))[v1::PAUSED] == 300; }));
  v1::ResumeArrayRequest resume;
  resume.set_name(pause.name());
  ASSERT_TRUE(jobs_->ResumeArray(context().get(), resume, &array).ok());
  ASSERT_TRUE(eventually([&] { return states_of(get_array("sweep"))[v1::RUNNING] > 0; }));
  v1::DeleteArrayRequest remove;
  remove.set_name(pause.name());
  google::protobuf::Empty empty;
  EXPECT_EQ(reason_of(jobs_->DeleteArray(context().get(), remove, &empty)), "JOB_STATE_CONFLICT");
  v1::CancelArrayRequest cancel;
  cancel.set_name(pause.name());
  ASSERT_TRUE(jobs_->CancelArray(context().get(), cancel, &array).ok());
  ASSERT_TRUE(ends("sweep"));
  EXPECT_EQ(states_of(get_array("sweep")), (std::map<v1::JobState, int>{{v1::CANCELLED, 300}}));
  const grpc::Status removed = jobs_->DeleteArray(context().get(), remove, &empty);
  EXPECT_TRUE(removed.ok()) << removed.error_message();
  EXPECT_EQ(list({}).jobs_size(), 0);
  EXPECT_EQ(reason_of(jobs_->DeleteArray(context().get(), remove, &empty)), "ARRAY_NOT_FOUND");
  EXPECT_TRUE(std::filesystem::is_empty(config_.state_dir / "jobs")) << "their files went too";
}

TEST_F(ServiceArray, TenThousandMembersLeaveRoomForASingleJob) {
  inventory_->set({{}, "no device"});  // so that no job starts
  v1::SubmitArrayRequest request = array_request("sweep");
  add(request, "recipe.seed", numbers(100));
  add(request, "recipe.optimizer.learning_rate", numbers(100, 1));
  v1::JobArray array;
  std::thread submitter([&] { array = submitted(request); });
  int singles = 0;
  for (; array.size() == 0 && singles < 20; ++singles)
    submit("single-" + std::to_string(singles), "");
  submitter.join();
  EXPECT_EQ(array.size(), 10'000);
  EXPECT_EQ(get("sweep-9999").array_index(), 9999);
  v1::CancelArrayRequest cancel;
  cancel.set_name(array.name());
  ASSERT_TRUE(jobs_->CancelArray(context().get(), cancel, &array).ok());
  EXPECT_EQ(states_of(array), (std::map<v1::JobState, int>{{v1::CANCELLED, 10'000}}));
}

}  // namespace
}  // namespace trainyard::server
