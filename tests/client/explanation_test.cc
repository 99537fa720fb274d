// Tests of `trainyard explain`, which tells a job's history in sentences.
#include "client/cli/explanation.h"

#include <gtest/gtest.h>

#include <string>

namespace trainyard::cli {
namespace {

class ExplanationTest : public ::testing::Test {
 protected:
  ExplanationTest() {
    job_.set_name("projects/default/jobs/digits-1");
    job_.mutable_progress()->set_steps_total(1000);
  }
  v1::Event& next(int attempt) {
    event_.Clear();
    event_.set_seq(++seq_);
    event_.set_attempt(attempt);
    event_.mutable_time()->set_seconds(1'700'000'000 + 60 * seq_);
    return event_;
  }
  void state(int attempt, v1::JobState state, const std::string& reason, const std::string& message,
             int64_t resumed_from = 0) {
    v1::StateChange& change = *next(attempt).mutable_state();
    change.set_state(state);
    change.set_reason(reason);
    change.set_message(message);
    change.set_resumed_from_step(resumed_from);
    if (state == v1::STARTING) change.set_device("devices/cpu");
    explainer_.add(event_);
    job_.set_state(state);
    job_.set_reason(reason);
    job_.set_message(message);
    job_.set_attempt(attempt);
  }
  void step(int attempt, int64_t step) {
    v1::MetricSeries& series = *next(attempt).mutable_metrics()->add_series();
    series.set_key("train/loss");
    series.add_steps(step);
    series.add_values(1);
    explainer_.add(event_);
    job_.mutable_progress()->set_step(step);
  }
  void checkpoint(int attempt, int64_t step, const std::string& error = "") {
    next(attempt).mutable_checkpoint()->set_step(step);
    event_.mutable_checkpoint()->set_error(error);
    explainer_.add(event_);
    if (error.empty()) job_.set_checkpoint_step(step);
  }
  /// Returns the whole page, one line per sentence.
  std::string page() const {
    const Explanation e = explainer_.explain(job_);
    std::string text = e.now + "\n";
    for (const auto& chapter : e.story) text += "- " + chapter.text + "\n";
    for (const std::string& line : e.kept) text += "kept: " + line + "\n";
    for (const std::string& line : e.to_do) text += "do: " + line + "\n";
    return text;
  }

  v1::Job job_;
  v1::Event event_;
  int64_t seq_ = 0;
  Explainer explainer_;
};

TEST_F(ExplanationTest, AKilledWorkerAndAFailureAreShownInOrder) {
  state(0, v1::QUEUED, "SUBMITTED", "");
  state(1, v1::STARTING, "CPU_FALLBACK", "Runs on the CPU. No GPU can be used now.");
  state(1, v1::RUNNING, "", "");
  checkpoint(1, 400);
  step(1, 440);
  state(1, v1::QUEUED, "WORKER_KILLED", "The worker was killed by signal 9 at step 440.");
  state(2, v1::STARTING, "DEVICE_ASSIGNED", "The same kind of device as before.");
  state(2, v1::RUNNING, "", "", 400);
  step(2, 451);
  state(2, v1::FAILED, "LOSS_NOT_FINITE", "the loss of step 452 is NaN");
  EXPECT_EQ(
      page(),
      "It failed at step 451 of 1,000 (LOSS_NOT_FINITE): the loss of step 452 is NaN\n"
      "- Submitted.\n"
      "- Attempt 1 begins on cpu: Runs on the CPU. No GPU can be used now.\n"
      "- Attempt 1 ends after 4 min 0 s at step 440, with a checkpoint of step 400. Back to the "
      "queue: The worker was killed by signal 9 at step 440.\n"
      "- Attempt 2 begins on cpu: The same kind of device as before.\n"
      "- It continues from the checkpoint of step 400; 40 steps are computed again.\n"
      "- Attempt 2 ends after 3 min 0 s at step 451. FAILED: the loss of step 452 is NaN\n"
      "kept: The checkpoint of step 400.\n"
      "kept: Its metrics and its log, until 'trainyard delete digits-1' or, if set, the server's "
      "rule keep_jobs or keep_events.\n"
      "do: Lower recipe.optimizer.learning_rate, limit gradients with "
      "'recipe.clip_gradients: {norm: 1}', or look for wrong values in the data. 'trainyard fork "
      "digits-1 --set recipe.optimizer.learning_rate=RATE' continues from its checkpoint, if it "
      "has one, with a lower rate; an unchanged retry would fail again.\n");
}

TEST_F(ExplanationTest, AJobThatWaitsSaysWhyAndWhatHelps) {
  state(0, v1::QUEUED, "SUBMITTED", "");
  state(0, v1::QUEUED, "NO_DEVICE", "Waits for a GPU: this server has none.");
  EXPECT_EQ(page(),
            "It waits in the queue: Waits for a GPU: this server has none.\n"
            "- Submitted.\n"
            "- It waits: Waits for a GPU: this server has none.\n"
            "kept: Its metrics and its log, until 'trainyard delete digits-1' or, if set, the "
            "server's rule keep_jobs or keep_events.\n"
            "do: 'trainyard device list' says why no device can be used. With 'resources: {device: "
            "cpu}' the job would run on the CPU.\n");
}

TEST_F(ExplanationTest, TheCpuIsNotSuggestedToJobsThatCannotUseIt) {
  const std::string on_the_cpu = "the job would run on the CPU";
  state(0, v1::QUEUED, "NO_DEVICE",
        "Needs 101 GiB of memory, 21 GiB more than gpu-0 has for it (80 GiB).");
  std::string text = page();
  EXPECT_EQ(text.find(on_the_cpu), std::string::npos) << text;
  EXPECT_NE(text.find("A smaller recipe.batch_size"), std::string::npos) << text;
  state(0, v1::QUEUED, "NO_DEVICE", "Waits for the CPU: none is usable now.");
  EXPECT_NE(page().find(on_the_cpu), std::string::npos);
  job_.mutable_spec()->mutable_resources()->set_device(v1::Resources::CPU);
  text = page();
  EXPECT_EQ(text.find(on_the_cpu), std::string::npos) << text;
  EXPECT_NE(text.find("says why no device can be used"), std::string::npos) << text;
}

TEST_F(ExplanationTest, ARunningJobShowsTheCostOfAnInterruption) {
  state(1, v1::STARTING, "DEVICE_ASSIGNED", "");
  state(1, v1::RUNNING, "", "");
  step(1, 7);
  checkpoint(1, 7, "no space left on device");
  job_.set_device("devices/cpu");
  std::string text = page();
  EXPECT_NE(text.find("It is training: step 7 of 1,000 on cpu.\n"), std::string::npos) << text;
  EXPECT_NE(text.find("No checkpoint yet: after an interruption, the job restarts from step 0."),
            std::string::npos);
  state(1, v1::QUEUED, "WORKER_NOT_RESPONDING", "The worker was silent.");
  state(2, v1::STARTING, "DEVICE_ASSIGNED", "");
  state(2, v1::RUNNING, "", "");
  text = page();
  EXPECT_NE(text.find("; 1 checkpoint could not be written (no space left on device). Back to"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("It restarts from step 0: there was no checkpoint."), std::string::npos)
      << text;
}

TEST_F(ExplanationTest, ASuccessNamesItsModel) {
  state(1, v1::STARTING, "DEVICE_ASSIGNED", "");
  state(1, v1::RUNNING, "", "");
  step(1, 1000);
  checkpoint(1, 1000);
  job_.set_model("projects/default/models/digits-1");
  state(1, v1::SUCCEEDED, "COMPLETED", "All steps are done.");
  const std::string text = page();
  EXPECT_NE(text.find("It succeeded after step 1,000 of 1,000: All steps are done."),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("kept: The model digits-1: 'trainyard predict digits-1'"), std::string::npos)
      << text;
  EXPECT_NE(
      text.find("kept: The checkpoint of step 1,000, until 'trainyard server gc' deletes it.\n"),
      std::string::npos)
      << text;
  job_.clear_model();
  EXPECT_NE(page().find("kept: No model: it was deleted. 'trainyard retry digits-1 --from-start'"),
            std::string::npos)
      << page();
}

TEST_F(ExplanationTest, AJobWithThinnedEventsSaysWhichRemain) {
  state(1, v1::STARTING, "DEVICE_ASSIGNED", "");
  state(1, v1::SUCCEEDED, "COMPLETED", "All steps are done.");
  job_.set_events_thinned(true);
  const std::string text = page();
  EXPECT_NE(text.find("kept: The newest value of each metric, until 'trainyard delete digits-1' "
                      "or, if set, the server's rule keep_jobs. The server's rule keep_events "
                      "has removed its log and earlier values.\n"),
            std::string::npos)
      << text;
}

// When a daemon adopts a worker, no state changes: the server writes a line to the job's log, among
// the worker's lines.
TEST_F(ExplanationTest, MessagesOfTheServerAreIncluded) {
  state(1, v1::STARTING, "DEVICE_ASSIGNED", "");
  const auto log = [&](const std::string& text, bool from_server) {
    next(1).mutable_log()->set_text(text);
    event_.mutable_log()->set_from_server(from_server);
    explainer_.add(event_);
  };
  log("the daemon was restarted; the worker continued training", true);
  log("projects/default/jobs/first is SUCCEEDED", true);
  log("the training data is on the device: 3 MiB", false);
  const std::string text = page();
  EXPECT_NE(text.find("- The daemon was restarted; the worker continued training.\n"
                      "- projects/default/jobs/first is SUCCEEDED.\nkept: "),
            std::string::npos)
      << text;
}

TEST_F(ExplanationTest, APausedJobSaysHowToResume) {
  state(0, v1::QUEUED, "WAITING_FOR_SCHEDULER",
        "A fork of projects/default/jobs/parent from the checkpoint of step 100; it waits for the "
        "scheduler.");
  state(1, v1::STARTING, "DEVICE_ASSIGNED", "The job requested the CPU.");
  state(1, v1::RUNNING, "RUNNING", "", 100);
  step(1, 250);
  checkpoint(1, 250);
  state(1, v1::PAUSED, "PAUSED",
        "Paused on request; it will continue from the checkpoint of step 250.");
  std::string text = page();
  EXPECT_NE(text.find("Submitted: A fork of projects/default/jobs/parent"), text.npos) << text;
  EXPECT_NE(text.find("It is paused at step 250 of 1,000"), text.npos) << text;
  EXPECT_NE(text.find("do: 'trainyard resume digits-1'"), text.npos) << text;
  state(1, v1::QUEUED, "WAITING_FOR_SCHEDULER", "Resumed on request; it waits for the scheduler.");
  text = page();
  EXPECT_NE(text.find("- Resumed on request"), text.npos) << text;
}

}  // namespace
}  // namespace trainyard::cli
