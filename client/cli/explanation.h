// client/cli/explanation.h: a job's story in sentences, made from the job and its events.
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
  std::vector<Chapter> story;      // its attempts, oldest first
  std::vector<std::string> kept;   // what there is of it
  std::vector<std::string> to_do;  // what its owner may do next
};

/// Reads a job's events in order, then explains. Texts of the server are taken over as they are:
/// they are not safe for a terminal yet.
class Explainer {
 public:
  void add(const v1::Event& event);
  Explanation explain(const v1::Job& job) const;

 private:
  void add_state(const v1::Event& event);
  void tell(const v1::Event& event, std::string text) {
    story_.push_back({event.time(), std::move(text)});
  }

  std::vector<Explanation::Chapter> story_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  int64_t step_ = 0;             // the newest one of which a metric came
  double attempt_began_s_ = 0;   // since 1970
  int64_t checkpoint_step_ = 0;  // of the newest checkpoint
  int64_t checkpoints_ = 0;      // of the attempt
  int64_t failed_saves_ = 0;     // of the attempt
  std::string failed_save_;      // why, the last time
};

}  // namespace trainyard::cli
