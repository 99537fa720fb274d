// Tests with scripts in place of Slurm's commands: which queries are made, and what is concluded
// from each kind of reply. Nothing may be concluded from missing, false or garbled replies.
#include "server/cluster/slurm_placement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "server/cluster/slurm_script.h"
#include "tests/server/placement_support.h"

namespace trainyard::server {
namespace {

/// Returns a line in squeue's output format, with the requested widths.
std::string line(const std::string& id, const std::string& name, const std::string& state,
                 int restarts = 0, const std::string& reason = "None",
                 const std::string& start = "1795790378", const std::string& nodes = "n1") {
  const auto field = [](std::string text, size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text + '\x1f';
  };
  return field(id, 20) + field(name, 256) + field(state, 24) + field(std::to_string(restarts), 12) +
         field(start, 24) + field(nodes, 256) + field(reason, 64) + "\n";
}

constexpr char kName[] = "ty-inst-01jobuid-1";
const PlacementHandle kHandle{"17", kName};

class FakeSlurm : public ::testing::Test {
 protected:
  FakeSlurm() : placement_(profile(20'000)), impatient_(profile(400)) { cluster("trainyard"); }

  SlurmProfile profile(int64_t timeout_ms) const {
    SlurmProfile profile = test_profile();
    profile.commands = folder_.path();
    profile.command_timeout_ms = timeout_ms;
    return profile;
  }
  void cluster(const std::string& name) {
    folder_.write("scontrol",
                  "echo 'Configuration data as of'; echo 'ClusterName             = " + name + "'");
  }
  /// Makes squeue list `listed`, and run the script `by_id` when it is asked for one ID.
  void squeue(const std::string& listed, const std::string& by_id = "exit 1") {
    std::ofstream(folder_.path() / "listed", std::ios::binary) << listed;
    folder_.write("squeue", "echo \"$*\" >>$folder/asked\ncase \"$*\" in\n*--jobs=*) " + by_id +
                                " ;;\n*) cat $folder/listed ;;\nesac");
  }
  /// Returns a script that prints this text.
  static std::string shown(const std::string& text) { return "printf '%s' '" + text + "'"; }
  Sighting observe_one(const PlacementHandle& handle = kHandle) {
    const PlacementHandle handles[] = {handle};
    auto seen = placement_.observe(handles);
    EXPECT_TRUE(seen.ok()) << seen.error().message;
    EXPECT_EQ(seen->size(), 1u);
    return seen.ok() && seen->size() == 1 ? seen->front() : Sighting{};
  }
  /// Returns true if the query failed or its result says nothing about the attempt.
  static bool no_evidence(SlurmPlacement& placement) {
    const PlacementHandle handles[] = {kHandle};
    const auto seen = placement.observe(handles);
    return !seen.ok() || seen->empty();
  }
  SubmitAnswer submit(const std::string& sbatch) {
    folder_.write("sbatch", sbatch);
    return placement_.submit(test_intent());
  }
  bool is_unknown(const std::string& sbatch) {
    folder_.write("sbatch", sbatch);
    return std::holds_alternative<SubmitUnknown>(impatient_.submit(test_intent()));
  }

  CommandFolder folder_;
  SlurmPlacement placement_;
  SlurmPlacement impatient_;  // for slow commands; has not queried the cluster's name yet
};

constexpr char kNoSuchJob[] = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1";

TEST_F(FakeSlurm, SubmitsTheScriptOnStandardInputWithoutLeakingTheSecret) {
  const SubmitAnswer answer =
      submit("echo \"$@\" >$folder/argv; env >$folder/env; cat >$folder/script; echo 17");
  ASSERT_TRUE(std::holds_alternative<Submitted>(answer));
  EXPECT_EQ(std::get<Submitted>(answer).handle, kHandle);
  const std::string secret = test_intent().secret;
  EXPECT_EQ(folder_.read("argv").find(secret), std::string::npos);
  EXPECT_EQ(folder_.read("env").find(secret), std::string::npos);
  EXPECT_NE(folder_.read("script").find("\n" + secret + "\n"), std::string::npos);
  for (const char* option :
       {"--parsable", "--job-name=ty-inst-01jobuid-1", "--dependency=singleton", "--no-requeue",
        "--export=NONE", "--propagate=NONE", "--gres=gpu:1", "--mem=100M", "--time=10",
        "--output=/dev/null", "--comment=jobs/digits", "--nodes=1", "--ntasks-per-node=1"}) {
    EXPECT_NE((" " + folder_.read("argv")).find(std::string(" ") + option), std::string::npos)
        << option;
  }
}

TEST_F(FakeSlurm, AcceptsOnlyANumberAsTheIdOfASubmission) {
  EXPECT_TRUE(std::holds_alternative<Submitted>(submit("echo 17")));
  EXPECT_TRUE(
      std::holds_alternative<Submitted>(submit("echo 'Welcome to the site'; echo '17;big'")));
  for (const char* odd : {"exit 0", "echo Submitted batch job 17", "echo 0", "echo -3", "echo 17x",
                          "printf '\\377\\376'", "echo 99999999999999999999"}) {
    EXPECT_TRUE(std::holds_alternative<SubmitUnknown>(submit(odd))) << odd;
  }
}

TEST_F(FakeSlurm, ConcludesNothingFromASubmissionWhoseAnswerIsLost) {
  for (const char* lost :
       {"exec sleep 60", "kill -9 $$", "echo 17; kill -9 $$", "exit 1", "exec yes",
        "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv "
        "operation' >&2; exit 1",
        "echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller "
        "(connect failure)' >&2; exit 1",
        "echo 'sbatch: error: Batch job submission failed: Zero Bytes were transmitted or "
        "received' >&2; exit 1",
        "echo 'sbatch: error: Protocol authentication error' >&2; exit 1"}) {
    EXPECT_TRUE(is_unknown(lost)) << lost;
  }
}

TEST_F(FakeSlurm, AfterAStopRunsNoCommandAndConcludesNothing) {
  squeue("");
  placement_.stop();
  EXPECT_TRUE(std::holds_alternative<SubmitUnknown>(submit("echo here >$folder/asked; echo 17")))
      << "the next daemon looks for it";
  EXPECT_TRUE(no_evidence(placement_));
  EXPECT_FALSE(placement_.find(kName).ok());
  EXPECT_FALSE(placement_.withdraw(kHandle).ok());
  EXPECT_EQ(placement_.explain(kHandle), "");
  const PlacementCheck checked = placement_.check();
  EXPECT_NE(checked.text.find("because the daemon is stopping"), std::string::npos) << checked.text;
  EXPECT_EQ(checked.refused, "");
  EXPECT_EQ(folder_.read("asked"), "");
}

TEST_F(FakeSlurm, RefusesWithSlurmsWords) {
  const SubmitAnswer answer = submit(
      "echo 'sbatch: error: invalid partition specified: nope' >&2; echo 'sbatch: error: "
      "Batch job submission failed: Invalid partition name specified' >&2; exit 1");
  ASSERT_TRUE(std::holds_alternative<SubmitRefused>(answer));
  EXPECT_EQ(std::get<SubmitRefused>(answer).text,
            "error: invalid partition specified: nope; error: Batch job submission failed: Invalid "
            "partition name specified");
  EXPECT_EQ(std::get<SubmitRefused>(answer).cause, SubmitRefused::Cause::kCluster);
  const SubmitAnswer for_now = submit(
      "echo 'sbatch: error: Batch job submission failed: Job violates accounting/QOS policy "
      "(job submit limit, the size or time limits of the user)' >&2; exit 1");
  ASSERT_TRUE(std::holds_alternative<SubmitRefused>(for_now));
  EXPECT_EQ(std::get<SubmitRefused>(for_now).cause, SubmitRefused::Cause::kNow);
  const SubmitAnswer fatal =
      submit("echo 'sbatch: fatal: Could not establish a configuration source' >&2; exit 1");
  ASSERT_TRUE(std::holds_alternative<SubmitRefused>(fatal));
  EXPECT_EQ(std::get<SubmitRefused>(fatal).cause, SubmitRefused::Cause::kNow);
  std::filesystem::remove(folder_.path() / "sbatch");
  const SubmitAnswer none = placement_.submit(test_intent());
  ASSERT_TRUE(std::holds_alternative<SubmitRefused>(none));
  EXPECT_NE(std::get<SubmitRefused>(none).text.find("No such file"), std::string::npos);
}

TEST_F(FakeSlurm, DistinguishesRefusalsOfProfileRequestAndMoment) {
  using enum SubmitRefused::Cause;
  const struct {
    const char* text;
    SubmitRefused::Cause cause;
  } cases[] = {
      {"Invalid partition name specified", kCluster},
      {"Invalid account or account/partition combination specified", kCluster},
      {"Invalid qos specification", kCluster},
      {"No partition specified or system default partition", kCluster},
      {"Requested reservation is invalid", kCluster},
      {"Access denied to requested reservation", kCluster},
      {"User's group not permitted to use this partition", kCluster},
      {"Access/permission denied", kCluster},
      {"Requested node configuration is not available", kRequest},
      {"Node count specification invalid", kRequest},
      {"More processors requested than permitted", kRequest},
      {"Requested time limit is invalid (missing or exceeds some limit)", kRequest},
      {"words of a site's own plug-in", kRequest},
      {"Required partition not available (inactive or drain)", kNow},
      {"Requested reservation not usable now", kNow},
      {"Requested partition configuration not available now", kNow},
      {"Job violates accounting/QOS policy (job submit limit)", kNow},
  };
  for (const auto& c : cases) {
    const std::string failure = std::string("echo \"sbatch: error: Batch job submission failed: ") +
                                c.text + "\" >&2; exit 1";
    const SubmitAnswer answer = submit(failure);
    ASSERT_TRUE(std::holds_alternative<SubmitRefused>(answer)) << c.text;
    EXPECT_EQ(std::get<SubmitRefused>(answer).cause, c.cause) << c.text;
    EXPECT_NE(std::get<SubmitRefused>(answer).text.find(c.text), std::string::npos);
  }
}

TEST_F(FakeSlurm, RefusesIntentsThatWouldChangeTheScript) {
  folder_.write("sbatch", "echo called >$folder/called; echo 17");
  const auto refused = [&](auto change) {
    AttemptIntent intent = test_intent();
    change(intent);
    return std::holds_alternative<SubmitRefused>(placement_.submit(intent));
  };
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.name = "ty-A"; }));
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.name = "ty-a,ty-b"; }));
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.name = std::string(201, 'a'); }));
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.name = ""; }));
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.secret = "a\nEND:OF:INPUT\nrm -rf /"; }));
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.secret = ""; }));
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.task = "t'; rm"; }));
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.attach = "host:1 --x"; }));
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.certificate_pem += "END:OF:INPUT\n"; }));
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.certificate_pem = "none"; }));
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.nodes = 0; }));
  EXPECT_TRUE(refused([](AttemptIntent& i) { i.cpus = 0; }));
  EXPECT_EQ(folder_.read("called"), "");
}

TEST_F(FakeSlurm, ReadsStates) {
  using enum Seen;
  const struct {
    const char* state;
    int restarts;
    Seen seen;
    const char* how;
  } cases[] = {
      {"PENDING", 0, kWaiting, ""},          {"CONFIGURING", 0, kGranted, ""},
      {"RUNNING", 0, kGranted, ""},          {"SUSPENDED", 0, kGranted, ""},
      {"COMPLETING", 0, kGranted, ""},       {"A_WORD_OF_NEXT_YEAR", 0, kGranted, ""},
      {"COMPLETED", 0, kEnded, "COMPLETED"}, {"CANCELLED", 0, kEnded, "CANCELLED"},
      {"NODE_FAIL", 0, kEnded, "NODE_FAIL"}, {"TIMEOUT", 0, kEnded, "TIMEOUT"},
      {"PREEMPTED", 0, kEnded, "PREEMPTED"}, {"OUT_OF_MEMORY", 0, kEnded, "OUT_OF_MEMORY"},
      {"COMPLETING", 1, kGranted, ""},       {"PENDING", 1, kEnded, "REQUEUED"},
      {"RUNNING", 1, kEnded, "REQUEUED"},    {"FAILED", 1, kEnded, "FAILED, after a requeue"}};
  for (const auto& c : cases) {
    squeue(line("17", kName, c.state, c.restarts));
    const Sighting sighting = observe_one();
    EXPECT_EQ(sighting.seen, c.seen) << c.state << " " << c.restarts;
    EXPECT_EQ(sighting.how, c.how) << c.state << " " << c.restarts;
  }
  squeue(line("17", kName, "PENDING", 0, "Resources", "1795790400", ""));
  EXPECT_EQ(observe_one().reason, "Resources");
  EXPECT_EQ(observe_one().start_estimate_us, 1'795'790'400'000'000);
  squeue(line("17", kName, "PENDING", 0, "Priority", "N/A", ""));
  EXPECT_EQ(observe_one().start_estimate_us, 0);
  squeue(line("17", kName, "FAILED", 0, "NonZeroExitCode"));
  EXPECT_EQ(observe_one().how, "FAILED (NonZeroExitCode)");
  EXPECT_EQ(observe_one().nodes, "n1");
}

TEST_F(FakeSlurm, QueriesManyJobsAtOnceByName) {
  std::string listed;
  std::vector<PlacementHandle> handles;
  for (int i = 1; i <= 100; ++i) {
    handles.push_back({std::to_string(i), "ty-i-j-" + std::to_string(i)});
    listed += line(std::to_string(i), handles.back().name, "RUNNING");
  }
  squeue(listed + line("500", "someone-elses", "RUNNING"));
  const auto seen = placement_.observe(handles);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->size(), 100u);
  const std::string asked = folder_.read("asked");
  EXPECT_EQ(std::count(asked.begin(), asked.end(), '\n'), 1);
  EXPECT_NE(asked.find("--states=all --user="), std::string::npos);
  EXPECT_NE(asked.find("--name=ty-i-j-1,ty-i-j-2,"), std::string::npos);
  EXPECT_TRUE(placement_.observe({}).ok());
}

// Fails if the attempts are queried by name in many commands, for each of which a controller would
// send its whole list.
TEST_F(FakeSlurm, QueriesThousandsAtOnce) {
  std::string listed;
  std::vector<PlacementHandle> handles;
  for (int i = 1; i <= 1200; ++i) {
    handles.push_back({std::to_string(i), "ty-i-j-" + std::to_string(i)});
    listed += line(std::to_string(i), handles.back().name, i % 2 == 0 ? "RUNNING" : "PENDING");
  }
  squeue(listed + line("5000", "ty-i-j-1200-of-another", "FAILED") +
         line("5001", "someone-elses", "FAILED"));
  const auto seen = placement_.observe(handles);
  ASSERT_TRUE(seen.ok()) << seen.error().message;
  ASSERT_EQ(seen->size(), 1200u);
  for (size_t i = 0; i < handles.size(); ++i) {
    EXPECT_EQ((*seen)[i].handle, handles[i]);
    EXPECT_EQ((*seen)[i].seen, i % 2 == 1 ? Seen::kGranted : Seen::kWaiting);
  }
  const std::string asked = folder_.read("asked");
  EXPECT_EQ(std::count(asked.begin(), asked.end(), '\n'), 1);
  EXPECT_EQ(asked.find("--name="), std::string::npos) << asked;
  EXPECT_NE(asked.find("Name:13"), std::string::npos) << "the longest of ours and two more";
}

TEST_F(FakeSlurm, ConcludesNothingFromFailuresGarbageOrDelays) {
  squeue("");
  for (const char* answer :
       {"exit 1", "kill -9 $$", "exec sleep 60", "exec yes", "echo garbage",
        "printf '\\377\\376|||'",
        "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"}) {
    folder_.write("squeue", answer);
    EXPECT_TRUE(no_evidence(impatient_)) << answer;
    EXPECT_FALSE(impatient_.find(kName).ok()) << answer;
  }
  const auto with_separators = [](std::string text) {
    std::replace(text.begin(), text.end(), '|', '\x1f');
    return text + "\n";
  };
  for (const char* odd :
       {"17|ty-inst-01jobuid-1|RUNNING|", "17|ty-inst-01jobuid-1|RUNNING|x|1|n1|None|",
        "x|ty-inst-01jobuid-1|RUNNING|0|1|n1|None|", "0|ty-inst-01jobuid-1|RUNNING|0|1|n1|None|",
        "17|ty-inst-01jobuid-1|running|0|1|n1|None|", "17|ty-inst-01jobuid-1||0|1|n1|None|",
        "17|ty-inst-01jobuid-1|RUNNING|-1|1|n1|None|",
        "17|ty-inst-01jobuid-1|RUNNING|0|1|\x7f|None|",
        "17|ty-inst-01jobuid-1|COMPLETED|0|1|n1|None|more"}) {
    squeue(with_separators(odd));
    EXPECT_TRUE(no_evidence(placement_)) << odd;
  }
  squeue(with_separators("17|ty-inst-01jobuid-1|COMPLETED|0|1|n1|None|"));
  EXPECT_FALSE(no_evidence(placement_)) << "without what is odd in them, they are";
  // One unreadable line makes the whole list unreliable.
  squeue(line("17", kName, "COMPLETED") + "\xff\xfe\n");
  EXPECT_TRUE(no_evidence(placement_));
}

TEST_F(FakeSlurm, ConcludesFromAnEmptyListOnlyIfTheIdIsUnknownToo) {
  squeue("", kNoSuchJob);
  EXPECT_EQ(observe_one().seen, Seen::kUnseen);
  squeue("", "exit 0");  // empty for each kind of query
  EXPECT_TRUE(no_evidence(placement_));
  for (const char* failure : {"exit 1", "echo 'Socket timed out' >&2; exit 1",
                              "echo 'squeue: error: of next year' >&2; exit 1", "kill -9 $$"}) {
    squeue("", failure);
    EXPECT_TRUE(no_evidence(placement_)) << failure;
  }
  squeue("", shown(line("17", kName, "RUNNING")));
  EXPECT_EQ(observe_one().seen, Seen::kGranted) << "the list was not complete";
}

TEST_F(FakeSlurm, RejectsAnotherClusterAndOneWithoutAName) {
  squeue("", kNoSuchJob);
  EXPECT_EQ(observe_one().seen, Seen::kUnseen);  // the cluster's name is known from here on
  cluster("another");
  EXPECT_TRUE(no_evidence(placement_));
  EXPECT_EQ(placement_.find(kName).error().reason, "SLURM_OTHER_CLUSTER");
  folder_.write("scontrol", "exit 0");
  EXPECT_TRUE(no_evidence(placement_));
  folder_.write("scontrol", "exit 1");
  EXPECT_TRUE(no_evidence(placement_));
  cluster("trainyard");
  EXPECT_EQ(observe_one().seen, Seen::kUnseen);

  SlurmProfile named = profile(20'000);
  named.cluster = "elsewhere";
  SlurmPlacement placement(named);
  EXPECT_FALSE(placement.find(kName).ok());
}

TEST_F(FakeSlurm, IgnoresAForeignJobWithAReusedId) {
  squeue("", shown(line("17", "some|one\xff-elses", "RUNNING")));
  EXPECT_EQ(observe_one().seen, Seen::kUnseen);
  folder_.write("scancel", "echo \"$*\" >$folder/cancelled");
  EXPECT_TRUE(placement_.withdraw(kHandle).ok());
  const std::string words = " " + folder_.read("cancelled");
  EXPECT_NE(words.find("--name=ty-inst-01jobuid-1"), std::string::npos);
  EXPECT_EQ(words.find(" 17"), std::string::npos) << "an id alone would end another's job";
  EXPECT_FALSE(placement_.withdraw({"17", ""}).ok()) << "that would end all of this user's jobs";
}

TEST_F(FakeSlurm, CountsADuplicateLikeTheFirst) {
  // The attempt is not over while any job with its name exists.
  squeue(line("18", kName, "PENDING", 0, "Dependency") + line("17", kName, "RUNNING"));
  EXPECT_EQ(observe_one().seen, Seen::kGranted);
  EXPECT_EQ(observe_one({"18", kName}).handle.id, "17");
  squeue(line("17", kName, "COMPLETED") + line("18", kName, "RUNNING"));
  EXPECT_EQ(observe_one().seen, Seen::kGranted);
  EXPECT_EQ(observe_one().handle.id, "18");
  squeue(line("17", kName, "FAILED") + line("18", kName, "PENDING", 0, "Priority"));
  EXPECT_EQ(observe_one().seen, Seen::kWaiting);
  squeue(line("17", kName, "FAILED") + line("18", kName, "CANCELLED"));
  EXPECT_EQ(observe_one().seen, Seen::kEnded);
  EXPECT_EQ(placement_.find(kName)->value().id, "17");
}

TEST_F(FakeSlurm, FindsAJobByExactNameOrReportsThatNoneExists) {
  squeue(line("17", kName, "PENDING", 0, "Priority"));
  EXPECT_EQ(placement_.find(kName)->value(), kHandle);
  squeue(line("17", std::string(kName) + "0", "RUNNING"));  // attempt 10 is a different attempt
  EXPECT_FALSE(placement_.find(kName)->has_value());
  squeue("");
  EXPECT_FALSE(placement_.find(kName)->has_value());
  EXPECT_EQ(observe_one({"", kName}).seen, Seen::kUnseen);
}

TEST_F(FakeSlurm, QueriesSixteenAbsentJobsInTurn) {
  std::vector<PlacementHandle> handles;
  for (int i = 1; i <= 40; ++i) {
    handles.push_back({std::to_string(i), "ty-i-j-" + std::to_string(i)});
  }
  squeue("", kNoSuchJob);
  std::vector<std::string> observed;
  for (int turn = 0; turn < 3; ++turn) {
    const auto seen = placement_.observe(handles);
    ASSERT_TRUE(seen.ok());
    EXPECT_EQ(seen->size(), 16u);
    for (const Sighting& sighting : *seen) observed.push_back(sighting.handle.id);
  }
  std::sort(observed.begin(), observed.end());
  observed.erase(std::unique(observed.begin(), observed.end()), observed.end());
  EXPECT_EQ(observed.size(), 40u);
}

TEST_F(FakeSlurm, QueriesTakeNoLongerThanOneCommand) {
  std::vector<PlacementHandle> handles;
  for (int i = 1; i <= 16; ++i) {
    handles.push_back({std::to_string(i), "ty-i-j-" + std::to_string(i)});
  }
  squeue("", "exec sleep 60");
  const auto seen = impatient_.observe(handles);
  EXPECT_TRUE(!seen.ok() || seen->empty());
  const std::string asked = folder_.read("asked");
  EXPECT_LE(std::count(asked.begin(), asked.end(), '\n'), 2) << "the list, and the first of them";
}

TEST_F(FakeSlurm, ReadsTheCauseOfAnEndFromTheControllerOrAccounting) {
  folder_.write("scontrol",
                "case \"$*\" in\n*'show job'*) echo 'JobId=17 JobName=ty-inst-01jobuid-1 "
                "JobState=FAILED Reason=NonZeroExitCode ExitCode=7:0 NodeList=n1' ;;\nesac");
  EXPECT_EQ(placement_.explain(kHandle),
            "Slurm job 17: FAILED, reason NonZeroExitCode, exit code 7:0, node n1");
  folder_.write("sacct", "echo asked >$folder/sacct-asked; echo 'NODE_FAIL|0:0|n2'");
  const auto with_storage = [&](const std::string& storage) {
    folder_.write("scontrol",
                  "case \"$*\" in\n*'show job'*) echo 'JobId=17 JobName=another-job' ;;\n*) echo "
                  "'AccountingStorageType   = " +
                      storage + "' ;;\nesac");
    return placement_.explain(kHandle);
  };
  EXPECT_EQ(with_storage("accounting_storage/none"), "");
  EXPECT_EQ(folder_.read("sacct-asked"), "") << "each question costs a database that is not there";
  EXPECT_NE(with_storage("accounting_storage/slurmdbd").find("NODE_FAIL|0:0|n2"),
            std::string::npos);
}

TEST_F(FakeSlurm, ChecksWithoutChangingAnything) {
  squeue("");
  folder_.write("sbatch",
                "case \"$*\" in\n--version) echo 'slurm-wlm 22.05.8' ;;\n*) echo \"$*\" "
                ">$folder/tested; exit 0 ;;\nesac");
  std::string text = placement_.check().text;
  EXPECT_NE(text.find("slurm-wlm 22.05.8, cluster 'trainyard'"), std::string::npos) << text;
  EXPECT_NE(text.find("warning: Slurm 22.05.8 may refuse"), std::string::npos) << text;
  EXPECT_NE(text.find("would be accepted"), std::string::npos) << text;
  EXPECT_EQ(text.find("MinJobAge"), std::string::npos) << text;
  EXPECT_EQ(folder_.read("tested").substr(0, 12), "--test-only ");
  folder_.write("sbatch",
                "case \"$*\" in\n--version) echo 'slurm 25.05.1' ;;\n*) echo 'allocation failure: "
                "Requested node configuration is not available' >&2; exit 1 ;;\nesac");
  text = placement_.check().text;
  EXPECT_EQ(text.find("may refuse"), std::string::npos) << text;
  EXPECT_NE(text.find("is not accepted: exit status 1: allocation failure"), std::string::npos);
  folder_.write("scontrol",
                "echo 'ClusterName = trainyard'; echo 'MinJobAge               = 2 sec'");
  EXPECT_NE(placement_.check().text.find("warning: MinJobAge is 2 s"), std::string::npos);
  folder_.write("squeue", "echo 'squeue: error: Invalid job format specification' >&2; exit 1");
  EXPECT_NE(placement_.check().text.find("Invalid job format"), std::string::npos);
  std::filesystem::remove(folder_.path() / "sbatch");
  EXPECT_NE(placement_.check().text.find("No such file"), std::string::npos);
}

// A cluster is closed only if Slurm refuses its profile, not if the cluster is full or the
// controller is unreachable.
TEST_F(FakeSlurm, ChecksIfTheProfileIsRefused) {
  squeue("");
  const auto refused = [&](const std::string& said) {
    folder_.write("sbatch", "case \"$*\" in\n--version) echo 'slurm 23.02.1' ;;\n*) echo '" + said +
                                "' >&2; exit 1 ;;\nesac");
    return placement_.check().refused;
  };
  EXPECT_EQ(refused("allocation failure: Invalid qos specification"),
            "allocation failure: Invalid qos specification");
  EXPECT_EQ(refused("allocation failure: Requested node configuration is not available"), "");
  EXPECT_EQ(refused("allocation failure: Unable to contact slurm controller (connect failure)"),
            "");
  EXPECT_EQ(refused("allocation failure: Required partition not available (inactive or drain)"),
            "");
  folder_.write("sbatch", "echo 'slurm 23.02.1'");
  EXPECT_EQ(placement_.check().refused, "");
}

TEST(SlurmVersion, WarnsOnlyOfFaultyVersions) {
  for (const char* text : {"slurm 22.05.5", "slurm-wlm 22.05.6", "slurm 22.05.7", "22.05.8"}) {
    EXPECT_NE(version_warning(text), "") << text;
  }
  for (const char* text :
       {"slurm 22.05.4", "slurm 22.05.9", "slurm 23.02.0", "slurm 22.05.80", ""}) {
    EXPECT_EQ(version_warning(text), "") << text;
  }
}

TEST(SlurmScript, RunsTheWorkerWithTheSecretOnStandardInput) {
  // Runs the generated script with a fake srun. Quotes, spaces and dollar signs in the operator's
  // paths must be literal, and a second start must end immediately.
  CommandFolder folder;
  folder.write("srun",
               "printf '%s\\n' \"$@\" >$folder/argv; cat >$folder/stdin; env >$folder/env; exit 3");
  SlurmProfile profile = test_profile();
  profile.commands = folder.path();
  profile.worker = "/opt/it's $HOME/`id`/trainyard-worker";
  profile.cache = "/var/\"cache\" \\n *";
  ASSERT_TRUE(validate(profile).ok());
  folder.write("script", job_script(profile, test_intent()));
  CommandRequest request;
  request.program = folder.path() / "script";
  request.environment = {"TMPDIR=" + folder.path().string()};
  CommandAnswer answer = run_command(request);
  EXPECT_EQ(answer.end, CommandAnswer::End::kExited);
  EXPECT_EQ(answer.number, 3) << answer.errors;
  EXPECT_EQ(folder.read("stdin"), test_intent().secret + "\n" + kTestCertificate);
  const std::string argv = folder.read("argv");
  EXPECT_NE(argv.find("\n" + profile.worker + "\n--attach\ndaemon.example:7443\n--certificate\n-" +
                      "\n--cache\n" + profile.cache + "\n--task\njob-01jobuid.1\n"),
            std::string::npos)
      << argv;
  EXPECT_EQ(argv.find(test_intent().secret), std::string::npos);
  EXPECT_EQ(folder.read("env").find(test_intent().secret), std::string::npos);

  std::filesystem::remove(folder.path() / "argv");
  request.environment.emplace_back("SLURM_RESTART_COUNT=0");
  EXPECT_EQ(run_command(request).number, 3);
  std::filesystem::remove(folder.path() / "argv");
  request.environment.back() = "SLURM_RESTART_COUNT=1";
  EXPECT_EQ(run_command(request).number, 75);
  EXPECT_EQ(folder.read("argv"), "");
}

// A site's settings for NCCL on its nodes must reach the workers that need NCCL. No other variables
// of that environment may reach them.
TEST(SlurmScript, GpusOfSeveralNodesAreOneTaskOnEach) {
  AttemptIntent intent = test_intent();
  intent.nodes = 2;
  intent.gpus_per_node = 8;
  intent.cpus = 16;
  const SlurmProfile profile = test_profile();
  const std::vector<std::string> words = sbatch_arguments(profile, intent);
  for (const char* word :
       {"--nodes=2", "--ntasks-per-node=1", "--gres=gpu:8", "--cpus-per-task=16"}) {
    EXPECT_EQ(std::ranges::count(words, word), 1) << word;
  }
  const std::string exported = "--export=PATH,HOME,USER,LANG,TMPDIR,SLURM_TMPDIR,LD_LIBRARY_PATH";
  const std::string script = job_script(profile, intent);
  EXPECT_NE(script.find("srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=16 "
                        "--kill-on-bad-exit=1 " +
                        exported + ",NCCL_SOCKET_IFNAME,NCCL_SOCKET_FAMILY,"),
            std::string::npos)
      << script;
  EXPECT_EQ(script.find("--gpus-per-task"), std::string::npos) << "a task sees all its node's";
  for (const auto& [nodes, gpus] : {std::pair(1, 8), {2, 0}}) {
    intent.nodes = nodes;
    intent.gpus_per_node = gpus;
    EXPECT_NE(job_script(profile, intent).find(exported + " \\\n"), std::string::npos);
  }
}

TEST(SlurmScript, RequestsTheResourcesOfProfileAndAttempt) {
  SlurmProfile profile = test_profile();
  profile.partition = "gpu";
  profile.gres_type = "h100";
  profile.extra_memory_bytes = 1;
  profile.time_limit_s = 3'601;
  AttemptIntent intent = test_intent();
  intent.time_limit_s = 0;
  intent.nodes = 2;
  intent.gpus_per_node = 8;
  intent.memory_bytes = (1 << 20) + 1;
  intent.title = "jobs/\xff\n$(id)";
  const std::vector<std::string> words = sbatch_arguments(profile, intent);
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  EXPECT_TRUE(has("--partition=gpu"));
  EXPECT_TRUE(has("--gres=gpu:h100:8"));
  EXPECT_TRUE(has("--mem=3M"));
  EXPECT_TRUE(has("--time=61"));
  EXPECT_TRUE(has("--nodes=2"));
  EXPECT_TRUE(has("--comment=jobs/??$(id)"));
  for (const std::string& word : words) EXPECT_EQ(word.find("--account"), std::string::npos);
  intent.gpus_per_node = 0;
  intent.memory_bytes = 0;
  for (const std::string& word : sbatch_arguments(profile, intent)) {
    EXPECT_NE(word.rfind("--gres", 0), 0u);
    EXPECT_NE(word.rfind("--mem", 0), 0u);
  }
}

TEST(SlurmProfileCheck, NamesTheField) {
  const auto message = [](auto change) {
    SlurmProfile profile = test_profile();
    change(profile);
    const Status status = validate(profile);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(message([](SlurmProfile&) {}), "");
  const auto names = [&](const char* field, auto change) {
    EXPECT_EQ(message(change).rfind(std::string("slurm.test.") + field, 0), 0u) << message(change);
  };
  names("partition", [](SlurmProfile& p) { p.partition = "a,b"; });
  names("account", [](SlurmProfile& p) { p.account = "--x"; });
  names("qos", [](SlurmProfile& p) { p.qos = "a b"; });
  names("reservation", [](SlurmProfile& p) { p.reservation = "a\nb"; });
  names("gres_type", [](SlurmProfile& p) { p.gres_type = "h100:8"; });
  names("worker", [](SlurmProfile& p) { p.worker = "trainyard-worker"; });
  names("cache", [](SlurmProfile& p) { p.cache = ""; });
  names("commands", [](SlurmProfile& p) { p.commands = "bin"; });
  names("output", [](SlurmProfile& p) { p.output = "out\n"; });
  names("command_timeout_ms", [](SlurmProfile& p) { p.command_timeout_ms = 0; });
  names("time_limit", [](SlurmProfile& p) { p.time_limit_s = -1; });
}

}  // namespace
}  // namespace trainyard::server
