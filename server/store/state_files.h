// server/store/state_files.h: which files of the state folder the store names. Who saves them and
// who checks them asks here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/store/job_state.h"
#include "server/store/sqlite.h"

namespace trainyard::server {

/// Names are as people write them: digits-1, digits@2.
struct StateFiles {
  struct Job {
    std::string name;
    std::string uid;
    JobState state = JobState::kQueued;
    int64_t checkpoint_step = 0;  // of the newest checkpoint that was reported; 0: none
    int64_t end_time_us = 0;
    bool ended() const { return is_terminal(state); }
  };
  struct Dataset {
    std::string name;
    std::string digest;
    bool ready = false;                // else there is no folder, or not a whole one
    std::vector<std::string> sources;  // digests of the uploads that it was or will be made of
  };
  struct Model {
    std::string name;
    std::string job_uid;  // empty: weights only, which are an upload
    std::string digest;   // of the weights
  };
  struct Upload {
    std::string sha256;
    int64_t size_bytes = 0;
    bool complete = false;
  };
  std::vector<Job> jobs;
  std::vector<Dataset> datasets;
  std::vector<Model> models;
  std::vector<Upload> uploads;
};

/// In one read transaction of the caller's. Throws SqliteError.
StateFiles list_state_files(Connection& db);

/// Number of the newest commit; 0 before the first. Throws SqliteError.
int64_t read_commit(Connection& db);

}  // namespace trainyard::server
