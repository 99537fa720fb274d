// client/cli/explanation.h: the history of a job in sentences, derived from the job and its events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {

struct Explanation {
  struct Chapter {
    google::protobuf::Timestamp time;
    std::string text;
  };
  std::string now;                 // what the job is doing, or how it ended, and why
  std::vector<Chapter> story;      // submission and attempts, oldest first
  std::vector<std::string> kept;   // what exists of the job: model, checkpoints
  std::vector<std::string> to_do;  // what its owner may do next
};

/// Reads a job's events in order, then explains the job. Texts from the server are copied unchanged
/// and must be escaped before they go to a terminal.
class Explainer {
 public:
  void add(const v1::Event& event);
  Explanation explain(const v1::Job& job) const;

 private:
  void add_state(const v1::Event& event);
  void add_chapter(const v1::Event& event, std::string text) {
    story_.push_back({event.time(), std::move(text)});
  }

  std::vector<Explanation::Chapter> story_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  int64_t step_ = 0;             // the newest step that had a metric
  double attempt_began_s_ = 0;   // seconds since 1970
  int64_t checkpoint_step_ = 0;  // step of the newest checkpoint
  int64_t checkpoints_ = 0;      // number of checkpoints in this attempt
  int64_t failed_saves_ = 0;     // number of checkpoints in this attempt that could not be saved
  std::string failed_save_;      // the reason of the last failure
};

}  // namespace trainyard::cli
