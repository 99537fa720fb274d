// Tests on a real Slurm of four nodes (tests/support/slurm.py starts it around this program), with
// a small script instead of the worker. They check that Slurm's commands behave as
// placement_slurm_test.cc assumes, also when an administrator, a lost node, a dead controller or a
// false reply interferes.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>

#include "server/cluster/command.h"
#include "server/cluster/slurm_placement.h"
#include "tests/server/placement_support.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

class Cluster : public ::testing::Test {
 protected:
  void SetUp() override {
    if (setting("TRAINYARD_SLURM").empty()) {
      GTEST_SKIP() << "there is no cluster: tests/support/slurm.py run -- "
                   << "this program";
    }
    fs::permissions(folder_.path(), fs::perms::others_exec | fs::perms::others_read,
                    fs::perm_options::add);
    // This worker records its input and runs until the test gives it an exit status.
    folder_.write("worker",
                  "task=$(echo \"$*\" | sed 's/.*--task //')\nmkdir -p $folder/$task\ncd "
                  "$folder/$task\necho start >>starts\ncat >stdin\nenv >env\necho \"$@\" "
                  ">argv\nps axeww >ps\necho $$ >pid.new; mv pid.new pid\nuntil "
                  "[ -e exit ]; do sleep 0.05; done\nexit $(cat exit)");
    profile_ = test_profile();
    profile_.commands = setting("TRAINYARD_SLURM_BIN");
    profile_.worker = folder_.path() / "worker";
    profile_.cache = folder_.path();
    profile_.output = folder_.path() / "output.%j";
    placement_ = std::make_unique<SlurmPlacement>(profile_);
    static int number = 0;
    intent_ = test_intent("ty-cluster-" + std::to_string(++number) + "-1");
    intent_.task = "task-" + std::to_string(number);
  }
  void TearDown() override {
    if (!placement_) return;
    for (const char* command : {"sbatch", "squeue", "scancel", "scontrol"}) {
      control({"lie", command, "honest"});
    }
    (void)placement_->withdraw({"", intent_.name});
  }

  /// Runs one of Slurm's own commands and returns its output.
  static std::string slurm(const std::string& command, std::vector<std::string> arguments) {
    CommandRequest request;
    request.program = command;
    request.arguments = std::move(arguments);
    request.environment = {"PATH=" + setting("PATH"), "SLURM_CONF=" + setting("SLURM_CONF")};
    const CommandAnswer answer = run_command(request);
    EXPECT_TRUE(answer.succeeded()) << command << ": " << describe(answer);
    return answer.output;
  }
  static void control(std::vector<std::string> words) {
    CommandRequest request;
    request.program = setting("TRAINYARD_SLURM_CONTROL");
    request.arguments = {"control", setting("TRAINYARD_SLURM")};
    request.arguments.insert(request.arguments.end(), words.begin(), words.end());
    request.environment = {"PATH=" + setting("PATH"), "PYTHONDONTWRITEBYTECODE=1"};
    const CommandAnswer answer = run_command(request);
    ASSERT_TRUE(answer.succeeded()) << words.front() << ": " << answer.errors;
  }
  static void wait_until(const std::string& what, const std::function<bool()>& condition) {
    ASSERT_TRUE(eventually(condition)) << "timed out: " << what;
  }

  PlacementHandle submit() {
    const SubmitAnswer answer = placement_->submit(intent_);
    if (const auto* submitted = std::get_if<Submitted>(&answer)) return submitted->handle;
    const auto* refused = std::get_if<SubmitRefused>(&answer);
    ADD_FAILURE() << (refused ? refused->text : std::get<SubmitUnknown>(answer).text);
    return {};
  }
  /// Observes the attempt once. Returns nothing if there is no evidence.
  std::optional<Sighting> observe_one(const PlacementHandle& handle) {
    const PlacementHandle handles[] = {handle};
    auto seen = placement_->observe(handles);
    if (!seen.ok() || seen->empty()) return std::nullopt;
    return seen->front();
  }
  Sighting wait_for(const PlacementHandle& handle, Seen seen) {
    std::optional<Sighting> last;
    wait_until("state " + std::to_string(static_cast<int>(seen)) + " of " + handle.name, [&] {
      last = observe_one(handle);
      return last && last->seen == seen;
    });
    return last.value_or(Sighting{});
  }
  std::string noted(const std::string& file) { return folder_.read(intent_.task + "/" + file); }
  void wait_for_worker() {
    wait_until("the worker runs", [&] { return !noted("pid").empty(); });
  }
  bool worker_lives() {
    if (noted("pid").empty()) return false;
    std::ifstream stat("/proc/" + std::to_string(std::stoi(noted("pid"))) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(stat)), {});
    return !text.empty() && text.find(") Z") == std::string::npos;
  }
  void end_worker(const std::string& status) {
    std::ofstream(folder_.path() / intent_.task / "exit.new") << status;
    fs::rename(folder_.path() / intent_.task / "exit.new", folder_.path() / intent_.task / "exit");
  }

  CommandFolder folder_;
  SlurmProfile profile_;
  std::unique_ptr<SlurmPlacement> placement_;
  AttemptIntent intent_;
};

TEST_F(Cluster, RunsAWorkerAndKeepsItsSecret) {
  const PlacementHandle handle = submit();
  wait_for_worker();
  const Sighting granted = wait_for(handle, Seen::kGranted);
  EXPECT_EQ(granted.nodes.substr(0, 1), "n");
  EXPECT_GT(granted.start_estimate_us, 1'700'000'000'000'000);
  EXPECT_EQ(placement_->find(intent_.name)->value(), handle);
  EXPECT_FALSE(placement_->find(intent_.name + "0")->has_value());

  EXPECT_EQ(noted("stdin"), intent_.secret + "\n" + kTestCertificate);
  EXPECT_NE(noted("env").find("CUDA_VISIBLE_DEVICES="), std::string::npos);
  EXPECT_NE(noted("argv").find("--attach daemon.example:7443 --certificate - "), std::string::npos);
  // The secret must be invisible to other users: not in the list of all processes with their
  // environments, in Slurm's record of the job, in its log or in the script's output.
  const std::string processes = noted("ps");
  EXPECT_NE(processes.find(intent_.task), std::string::npos) << "the list has the worker itself";
  EXPECT_EQ(processes.find(intent_.secret), std::string::npos);
  EXPECT_EQ(noted("env").find(intent_.secret), std::string::npos);
  const std::string record = slurm("scontrol", {"show", "job", handle.id});
  EXPECT_NE(record.find("Comment=jobs/digits"), std::string::npos);
  EXPECT_NE(record.find("Requeue=0"), std::string::npos);
  EXPECT_EQ(record.find(intent_.secret), std::string::npos);
  EXPECT_EQ(folder_.read("output." + handle.id).find(intent_.secret), std::string::npos);

  end_worker("0");
  EXPECT_EQ(wait_for(handle, Seen::kEnded).how, "COMPLETED");
}

TEST_F(Cluster, SaysHowAWorkerFailed) {
  const PlacementHandle handle = submit();
  wait_for_worker();
  end_worker("7");
  EXPECT_EQ(wait_for(handle, Seen::kEnded).how, "FAILED (NonZeroExitCode)");
  const std::string text = placement_->explain(handle);
  EXPECT_NE(text.find("FAILED, reason NonZeroExitCode, exit code 7:0, node n"), std::string::npos)
      << text;
}

TEST_F(Cluster, WithdrawsRunningAndWaitingJobs) {
  const PlacementHandle running = submit();
  wait_for_worker();
  ASSERT_TRUE(placement_->withdraw(running).ok());
  EXPECT_EQ(wait_for(running, Seen::kEnded).how, "CANCELLED");
  EXPECT_FALSE(worker_lives());
  EXPECT_TRUE(placement_->withdraw(running).ok()) << "once more";

  intent_.name += "b";
  intent_.nodes = 5;  // the cluster has four, so Slurm lets the job wait forever
  const PlacementHandle waiting = submit();
  const Sighting seen = wait_for(waiting, Seen::kWaiting);
  wait_until("a reason", [&] { return observe_one(waiting)->reason == "PartitionNodeLimit"; });
  EXPECT_EQ(seen.start_estimate_us, 0);
  ASSERT_TRUE(placement_->withdraw(waiting).ok());
  EXPECT_EQ(wait_for(waiting, Seen::kEnded).how.substr(0, 9), "CANCELLED");
}

TEST_F(Cluster, SaysWhyAJobWaitsAndRefusesImpossibleRequests) {
  SlurmProfile brief = profile_;
  brief.partition = "brief";  // this partition allows one minute, and the attempt asks for ten
  SlurmPlacement in_brief(brief);
  const SubmitAnswer answer = in_brief.submit(intent_);
  ASSERT_TRUE(std::holds_alternative<Submitted>(answer));
  wait_until("a reason", [&] {
    return observe_one(std::get<Submitted>(answer).handle)->reason == "PartitionTimeLimit";
  });
  intent_.name += "b";
  intent_.gpus_per_node = 9;
  const SubmitAnswer refused = placement_->submit(intent_);
  ASSERT_TRUE(std::holds_alternative<SubmitRefused>(refused));
  EXPECT_NE(std::get<SubmitRefused>(refused).text.find("Requested node configuration"),
            std::string::npos);
  brief.partition = "no-such";
  EXPECT_TRUE(std::holds_alternative<SubmitRefused>(SlurmPlacement(brief).submit(intent_)));
}

TEST_F(Cluster, ChecksTheCluster) {
  profile_.gpus_per_node = 4;
  std::string text = SlurmPlacement(profile_).check().text;
  EXPECT_NE(text.find("cluster 'trainyard'"), std::string::npos) << text;
  EXPECT_NE(text.find("would be accepted"), std::string::npos) << text;
  profile_.gpus_per_node = 5;
  text = SlurmPlacement(profile_).check().text;
  EXPECT_NE(text.find("warning: a request of one node, 5 GPUs is not accepted"), std::string::npos)
      << text;
  profile_.cluster = "elsewhere";
  EXPECT_NE(SlurmPlacement(profile_).check().text.find("expected 'elsewhere'"), std::string::npos);
}

TEST_F(Cluster, NoticesJobsThatOthersEnd) {
  const PlacementHandle cancelled = submit();
  wait_for_worker();
  slurm("scancel", {cancelled.id});
  EXPECT_EQ(wait_for(cancelled, Seen::kEnded).how, "CANCELLED");
  EXPECT_FALSE(worker_lives());

  intent_.name += "b";
  intent_.task += "b";
  const PlacementHandle preempted = submit();
  wait_for_worker();
  const std::string node = wait_for(preempted, Seen::kGranted).nodes;
  slurm("sbatch", {"--partition=urgent", "--nodelist=" + node, "--exclusive", "--job-name=urgent",
                   "--output=/dev/null", "--wrap=sleep 600"});
  EXPECT_EQ(wait_for(preempted, Seen::kEnded).how, "PREEMPTED");
  EXPECT_FALSE(worker_lives());
  slurm("scancel", {"--name=urgent"});
}

TEST_F(Cluster, TreatsARequeueAsTheEndAndStartsNoSecondWorker) {
  const PlacementHandle handle = submit();
  wait_for_worker();
  slurm("scontrol", {"update", "job", handle.id, "requeue=1"});
  slurm("scontrol", {"requeue", handle.id});
  EXPECT_EQ(wait_for(handle, Seen::kEnded).how, "REQUEUED");
  EXPECT_FALSE(worker_lives());
  // Slurm would delay the requeued job by two minutes.
  slurm("scontrol", {"update", "job", handle.id, "StartTime=now"});
  wait_until("its second run has ended", [&] {
    return observe_one(handle)->how == "FAILED, after a requeue (NonZeroExitCode)";
  });
  EXPECT_EQ(noted("starts"), "start\n");
}

TEST_F(Cluster, FindsASubmissionWhoseAnswerWasLost) {
  control({"lie", "sbatch", "once:lost"});
  ASSERT_TRUE(std::holds_alternative<SubmitUnknown>(placement_->submit(intent_)));
  const auto found = placement_->find(intent_.name);
  ASSERT_TRUE(found.ok() && found->has_value());
  wait_for_worker();
  EXPECT_EQ(wait_for({"", intent_.name}, Seen::kGranted).handle, **found);
}

TEST_F(Cluster, DoesNotFindASubmissionThatNeverArrived) {
  control({"lie", "sbatch", "once:fail"});
  ASSERT_TRUE(std::holds_alternative<SubmitUnknown>(placement_->submit(intent_)));
  const auto found = placement_->find(intent_.name);
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->has_value());
  EXPECT_EQ(observe_one({"", intent_.name})->seen, Seen::kUnseen);
}

TEST_F(Cluster, RunsOneOfTwoSubmissionsAndWithdrawsBoth) {
  control({"lie", "sbatch", "once:twice"});
  const PlacementHandle second = submit();
  wait_for_worker();
  const Sighting seen = wait_for(second, Seen::kGranted);
  EXPECT_NE(seen.handle.id, second.id) << "the first runs, the second waits for it";
  const std::string states =
      slurm("squeue", {"--noheader", "--name=" + intent_.name, "--format=%T %r"});
  EXPECT_NE(states.find("PENDING Dependency"), std::string::npos) << states;
  ASSERT_TRUE(placement_->withdraw(second).ok());
  wait_for(second, Seen::kEnded);
  EXPECT_EQ(slurm("squeue", {"--noheader", "--name=" + intent_.name}), "");
  EXPECT_EQ(noted("starts"), "start\n");
}

TEST_F(Cluster, ConcludesNothingFromWrongAnswers) {
  const PlacementHandle handle = submit();
  wait_for_worker();
  for (const char* lie : {"empty", "garbage", "endless", "fail"}) {
    control({"lie", "squeue", lie});
    EXPECT_FALSE(observe_one(handle)) << lie;
    // Only the list is false; the query by ID is answered truthfully.
    control({"lie", "squeue", std::string("once:") + lie});
    const auto seen = observe_one(handle);
    EXPECT_TRUE(!seen || seen->seen == Seen::kGranted) << lie;
  }
  control({"lie", "squeue", "slow=30"});
  profile_.command_timeout_ms = 500;
  SlurmPlacement impatient(profile_);
  const PlacementHandle handles[] = {handle};
  EXPECT_FALSE(impatient.observe(handles).ok());
  control({"lie", "squeue", "honest"});
  control({"lie", "scancel", "empty"});
  EXPECT_TRUE(placement_->withdraw(handle).ok()) << "it was asked";
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(observe_one(handle)->seen, Seen::kGranted) << "and it was not done";
  EXPECT_TRUE(worker_lives());
}

TEST_F(Cluster, SurvivesARestartOfTheController) {
  const PlacementHandle handle = submit();
  wait_for_worker();
  wait_for(handle, Seen::kGranted);
  // The controller saves the jobs that it has accepted every five seconds. If it is killed before
  // that, it forgets the job and kills the job's processes.
  const auto granted = fs::file_time_type::clock::now();
  wait_until("the controller has saved its state", [&] {
    std::error_code ec;
    return fs::last_write_time(setting("TRAINYARD_SLURM") + "/state/job_state", ec) > granted &&
           !ec;
  });
  control({"kill-controller"});
  profile_.command_timeout_ms = 1'000;  // Slurm's commands retry for ten seconds
  SlurmPlacement impatient(profile_);
  const PlacementHandle handles[] = {handle};
  EXPECT_FALSE(impatient.observe(handles).ok());
  EXPECT_FALSE(impatient.find(handle.name).ok());
  EXPECT_FALSE(impatient.withdraw(handle).ok());
  AttemptIntent other = intent_;
  other.name += "b";
  EXPECT_TRUE(std::holds_alternative<SubmitUnknown>(impatient.submit(other)));
  EXPECT_TRUE(worker_lives());
  control({"start-controller"});
  EXPECT_EQ(wait_for(handle, Seen::kGranted).handle, handle);
  EXPECT_TRUE(worker_lives());
}

TEST_F(Cluster, NoticesTheLossOfANode) {
  const PlacementHandle handle = submit();
  wait_for_worker();
  const std::string node = wait_for(handle, Seen::kGranted).nodes;
  control({"kill-node", node});
  EXPECT_FALSE(worker_lives());
  // Until the controller notices the loss, it reports the job as running: the daemon relies on
  // Slurm, not on silence alone.
  EXPECT_EQ(observe_one(handle)->seen, Seen::kGranted);
  EXPECT_EQ(wait_for(handle, Seen::kEnded).how.substr(0, 9), "NODE_FAIL");
  control({"start-node", node});
  control({"wait-for-nodes"});
}

// Must be the last test: after it the controller has forgotten all earlier jobs.
TEST_F(Cluster, DistinguishesItsJobsFromThoseThatReuseTheirIds) {
  const PlacementHandle handle = submit();
  wait_for_worker();
  control({"kill-controller"});
  control({"start-empty-controller"});
  control({"wait-for-nodes"});
  wait_until("the worker that no controller knows is ended", [&] { return !worker_lives(); });
  EXPECT_EQ(wait_for(handle, Seen::kUnseen).handle, handle);
  // Job IDs start again at 1, so that another user's job gets the ID of this attempt.
  std::string id;
  while (id != handle.id) {
    const std::string answer = slurm(
        "sbatch",
        {"--parsable", "--job-name=another", "--output=/dev/null", "--hold", "--wrap=sleep 600"});
    id = answer.substr(0, answer.find('\n'));
    ASSERT_LE(std::stoi(id), std::stoi(handle.id));
  }
  EXPECT_EQ(observe_one(handle)->seen, Seen::kUnseen);
  EXPECT_FALSE(placement_->find(handle.name)->has_value());
  EXPECT_EQ(placement_->explain(handle), "");
  ASSERT_TRUE(placement_->withdraw(handle).ok());
  EXPECT_NE(slurm("squeue", {"--noheader", "--jobs=" + id, "--format=%T"}).find("PENDING"),
            std::string::npos)
      << "another's job was ended";
  slurm("scancel", {"--name=another"});
}

}  // namespace
}  // namespace trainyard::server
