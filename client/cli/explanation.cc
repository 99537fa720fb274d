#include "client/cli/explanation.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "client/cli/job_view.h"
#include "client/cli/output.h"
#include "client/cli/relative_name.h"
#include "client/lib/follow.h"
#include "client/lib/metric_history.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

/// A reason code and the text that tells the user how to resolve it. NAME in the text is replaced
/// by the job's name.
struct Remedy {
  std::string_view reason;
  const char* text;
};
constexpr const char* kNeedsLessMemory =
    "'trainyard plan SPEC' shows what needs memory. A smaller recipe.batch_size, more "
    "recipe.accumulate_steps or 'recipe.recompute: blocks' need less.";
constexpr Remedy kOfFailures[] = {
    {"LOSS_NOT_FINITE",
     "Lower recipe.optimizer.learning_rate, limit gradients with 'recipe.clip_gradients: {norm: "
     "1}', or look for wrong values in the data. 'trainyard fork NAME --set "
     "recipe.optimizer.learning_rate=RATE' continues from its checkpoint, if it has one, with a "
     "lower rate; an unchanged retry would fail again."},
    {"OUT_OF_MEMORY", kNeedsLessMemory},
    {"DEVICE_OUT_OF_MEMORY", kNeedsLessMemory},
    {"CRASH_LOOP",
     "'trainyard logs NAME' shows the last output of its workers. If other jobs run well on this "
     "device, this model or its data triggers a fault of Trainyard: please report it with the "
     "log."},
    {"WORKER_STALLED",
     "Its steps made no progress several times: check the server's disk and the device ('trainyard "
     "device list'). If steps of this job need that long, the server's stall_timeout_seconds is "
     "too short."},
    {"DEPENDENCY_FAILED",
     "'trainyard explain' of that job says why. Once a retry of it has succeeded, submit this job "
     "again, with the new job in 'after'."},
    {"TIME_LIMIT_REACHED",
     "'trainyard retry NAME' continues from its checkpoint, with the same time limit again; "
     "'trainyard fork NAME --set resources.time_limit_seconds=SECONDS' with another limit."},
    {"WORKER_PROTOCOL_ERROR",
     "This is a fault of Trainyard: please report it with 'trainyard logs NAME'."},
    {"INTERNAL",
     "This is a fault of Trainyard: please report it with 'trainyard logs NAME' and the server's "
     "log."},
};
constexpr Remedy kOfWaiting[] = {
    {"WAITING_FOR_DEVICE",
     "'trainyard queue' shows the jobs before it, 'trainyard device list' the running ones; "
     "'trainyard prioritize NAME --priority 10' moves it forward."},
    {"WAITING_FOR_MEMORY",
     "End the processes that use the device's memory; the job then starts by itself within "
     "seconds. 'trainyard device list' shows how much they use."},
    {"QUOTA_DEVICES",
     "It starts by itself once other jobs of the same owner or project have ended. 'trainyard "
     "quota "
     "list' shows the quotas and what is used of them; an admin can raise them."},
    {"QUOTA_DEVICE_HOURS",
     "It starts by itself at the time that the message names. 'trainyard usage' shows what has "
     "used "
     "the hours, 'trainyard quota list' the quotas; an admin can raise them."},
    {"WAITING_FOR_JOB", "It starts by itself once that job has ended in the required state."},
    {"NO_DEVICE", "'trainyard device list' says why no device can be used."},
    {"STORAGE_FULL", "Free space on the server's disk; the job then continues by itself."},
    {"STORAGE_ERROR",
     "The server's operator should check its disk and log, and restore what the message says is "
     "missing; the job then continues by itself. If that is lost, run 'trainyard cancel NAME'."},
    {"WORKER_START_FAILED",
     "The server's log says why its worker cannot be started; once that is fixed, the job "
     "continues by itself."},
    {"HOST_FAULT",
     "The server's operator should do what the message says; the job then continues by itself."},
    {"VERSION_SKEW",
     "The server's operator should install trainyardd and trainyard-worker of one version."},
};

constexpr const char* kOnTheCpu = " With 'resources: {device: cpu}' the job would run on the CPU.";

template <size_t n>
const char* remedy_for(std::string_view reason, const Remedy (&remedies)[n]) {
  const auto* found = std::ranges::find(remedies, reason, &Remedy::reason);
  return found == std::end(remedies) ? nullptr : found->text;
}

std::string named(std::string text, std::string_view name) {
  constexpr std::string_view kName = "NAME";
  for (size_t at = 0; (at = text.find(kName, at)) != std::string::npos; at += name.size()) {
    text.replace(at, kName.size(), name);
  }
  return text;
}

std::string step_text(int64_t step) { return "step " + grouped(step); }

/// Returns a log line as a sentence: its first letter becomes a capital, unless the first word is a
/// resource name.
std::string sentence(std::string text) {
  const bool name = text.substr(0, text.find(' ')).find('/') != std::string::npos;
  if (!text.empty() && !name && text[0] >= 'a' && text[0] <= 'z') {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  }
  return text + ".";
}

/// Returns a sentence, followed by the server's message if there is one.
std::string with_message(std::string text, const std::string& message) {
  return message.empty() ? text + "." : text + ": " + message;
}

/// Returns "Submitted.", or for a retry or a fork its origin, which the message of the first event
/// gives.
std::string submitted_text(const v1::StateChange& change) {
  const bool made = change.message().starts_with("A ");
  return made ? with_message("Submitted", change.message()) : "Submitted.";
}

std::string now_of(const v1::Job& job) {
  const int64_t total = std::max(job.progress().steps_total(), job.plan().steps_total());
  const std::string of = total > 0 ? " of " + grouped(total) : std::string();
  const std::string at = step_text(job.progress().step()) + of;
  switch (job.state()) {
    case v1::QUEUED:
      return with_message(job.attempt() > 0 ? "It is back in the queue after " + at
                                            : std::string("It waits in the queue"),
                          job.message());
    case v1::STARTING:
      return with_message("It is starting", job.message());
    case v1::RUNNING:
      return "It is training: " + at + " on " + devices_text(job.device(), job.devices()) +
             (job.cancel_requested()  ? ", and will stop as requested."
              : job.pause_requested() ? ", and will pause as requested."
                                      : ".") +
             (job.reason() == "STORAGE_FULL" ? " " + job.message() : "");
    case v1::PAUSED:
      return with_message("It is paused at " + at, job.message());
    case v1::SUCCEEDED:
      return with_message("It succeeded after " + at, job.message());
    case v1::FAILED:
      return with_message(
          "It failed at " + at + (job.reason().empty() ? "" : " (" + job.reason() + ")"),
          job.message());
    case v1::CANCELLED:
      return with_message("It was cancelled at " + at, job.message());
    default:
      return with_message("Its state is " + state_name(job.state()), job.message());
  }
}

std::vector<std::string> kept_of(const v1::Job& job) {
  const std::string name(relative_name(job.name()));
  std::vector<std::string> kept;
  if (!job.model().empty()) {
    const std::string model(relative_name(job.model()));
    kept.push_back("The model " + model + ": 'trainyard predict " + model +
                   "' uses it, 'trainyard model export " + model + "' writes its weights.");
  } else if (job.state() == v1::SUCCEEDED) {
    kept.push_back("No model: it was deleted. 'trainyard retry " + name +
                   " --from-start' trains it again.");
  }
  if (job.checkpoint_step() > 0) {
    kept.push_back("The checkpoint of " + step_text(job.checkpoint_step()) +
                   (job.state() == v1::SUCCEEDED       ? ", until 'trainyard server gc' deletes it."
                    : client::is_terminal(job.state()) ? "."
                                                       : ", from which it continues."));
  } else if (!client::is_terminal(job.state()) && job.progress().step() > 0) {
    kept.push_back("No checkpoint yet: after an interruption, the job restarts from step 0.");
  }
  const std::string until =
      ", until 'trainyard delete " + name + "' or, if set, the server's rule keep_jobs";
  kept.push_back(job.events_thinned()
                     ? "The newest value of each metric" + until +
                           ". The server's rule keep_events has removed its log and earlier values."
                     : "Its metrics and its log" + until + " or keep_events.");
  return kept;
}

std::string remedy_of_waiting(const v1::Job& job) {
  const char* text = remedy_for(job.reason(), kOfWaiting);
  if (text == nullptr) return "Nothing: it starts by itself.";
  if (job.reason() != "NO_DEVICE") return text;
  // A message that begins with "Needs " means that the job is larger than every device it may use.
  if (job.message().starts_with("Needs ")) {
    return std::string("'trainyard device list' shows how much memory each has. ") +
           kNeedsLessMemory;
  }
  const bool asked_for_cpu = job.spec().resources().device() == v1::Resources::CPU;
  return std::string(text) + (asked_for_cpu ? "" : kOnTheCpu);
}

std::vector<std::string> to_do_of(const v1::Job& job) {
  const std::string name(relative_name(job.name()));
  const char* text = nullptr;
  switch (job.state()) {
    case v1::QUEUED:
      return {named(remedy_of_waiting(job), name)};
    case v1::STARTING:
    case v1::RUNNING:
      return {named("'trainyard watch NAME' shows its progress; 'trainyard cancel NAME' ends it.",
                    name)};
    case v1::SUCCEEDED:
      return {named("'trainyard get NAME' and 'trainyard plot NAME' show its metrics.", name)};
    case v1::FAILED:
      text = remedy_for(job.reason(), kOfFailures);
      return {
          named(text != nullptr
                    ? text
                    : "Change what the message names and submit the job again, or run 'trainyard "
                      "retry NAME' if the cause is fixed; 'trainyard logs NAME' shows more.",
                name)};
    case v1::CANCELLED:
      text = remedy_for(job.reason(), kOfFailures);
      return {named(text != nullptr
                        ? text
                        : "'trainyard retry NAME' continues where it was cancelled, as a new job.",
                    name)};
    case v1::PAUSED:
      return {named("'trainyard resume NAME' puts it back into the queue.", name)};
    default:
      return {};
  }
}

}  // namespace

void Explainer::add(const v1::Event& event) {
  client::visit_samples(event, [&](const std::string&, const client::MetricSample& sample) {
    step_ = std::max(step_, sample.step);
  });
  if (event.has_checkpoint()) {
    if (event.checkpoint().error().empty()) {
      ++checkpoints_;
      checkpoint_step_ = event.checkpoint().step();
    } else {
      ++failed_saves_;
      failed_save_ = event.checkpoint().error();
    }
  }
  if (event.has_state()) add_state(event);
  // Log lines of the server itself belong to the story, such as a changed priority. A worker's log
  // lines do not.
  if (event.has_log() && event.log().from_server())
    add_chapter(event, sentence(event.log().text()));
}

void Explainer::add_state(const v1::Event& event) {
  const v1::StateChange& change = event.state();
  const v1::JobState before = std::exchange(state_, change.state());
  const std::string attempt = "Attempt " + std::to_string(event.attempt());
  switch (change.state()) {
    case v1::STARTING:
      attempt_began_s_ = seconds_of(event.time());
      checkpoints_ = failed_saves_ = 0;
      return add_chapter(event, with_message(attempt + " begins on " +
                                                 devices_text(change.device(), change.devices()),
                                             change.message()));
    case v1::RUNNING:
      if (change.resumed_from_step() > 0) {
        const int64_t again = step_ - change.resumed_from_step();
        add_chapter(event,
                    "It continues from the checkpoint of " + step_text(change.resumed_from_step()) +
                        (again > 0 ? "; " + grouped(again) + " steps are computed again." : "."));
        step_ = change.resumed_from_step();
      } else if (event.attempt() > 1) {
        add_chapter(event, "It restarts from step 0: there was no checkpoint.");
        step_ = 0;
      }
      return;
    case v1::QUEUED:
      if (before == v1::JOB_STATE_UNSPECIFIED) return add_chapter(event, submitted_text(change));
      if (before == v1::QUEUED)
        return add_chapter(event, with_message("It waits", change.message()));
      if (before == v1::PAUSED) return add_chapter(event, change.message());
      [[fallthrough]];
    default: {
      std::string text;
      if (attempt_began_s_ > 0 && before != v1::QUEUED) {
        text = attempt + " ends after " +
               human_duration(seconds_of(event.time()) - attempt_began_s_) + " at " +
               step_text(step_);
        if (checkpoints_ > 0) {
          text += ", with a checkpoint of " + step_text(checkpoint_step_);
        }
        if (failed_saves_ > 0) {
          text += "; " + grouped(failed_saves_) +
                  (failed_saves_ == 1 ? " checkpoint" : " checkpoints") +
                  " could not be written (" + failed_save_ + ")";
        }
        text += ". ";
      }
      const std::string what =
          change.state() == v1::QUEUED ? "Back to the queue" : state_name(change.state());
      add_chapter(event, text + with_message(what, change.message()));
    }
  }
}

Explanation Explainer::explain(const v1::Job& job) const {
  return {now_of(job), story_, kept_of(job), to_do_of(job)};
}

}  // namespace trainyard::cli
