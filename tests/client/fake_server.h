// tests/client/fake_server.h: a server of our API in this process, on a Unix socket, that
// misbehaves on request. It keeps the contract's bookkeeping (committed sizes, sequence numbers)
// itself, so that a client that breaks the contract is noticed.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "client/lib/client.h"

namespace trainyard::client {

/// What the server is asked to do, and what it saw. Guarded by mu once the server runs.
struct FakeState {
  std::mutex mu;

  // --- what to do
  std::map<std::string, v1::Job> jobs;                   // by full name
  std::map<std::string, v1::JobArray> arrays;            // by full name
  std::map<std::string, std::vector<v1::Event>> events;  // by full name
  std::map<std::string, v1::Model> models;
  std::map<std::string, std::string> model_files;  // file name -> content
  bool damage_model_files = false;
  bool many_classes = false;      // Predict answers as of more than 65,536 classes
  std::string odd_file_name;      // DownloadModel sends a file of this name
  int submit_unavailable = 0;     // so many submits fail before anything is stored
  Error submit_error;             // refused with this, if reason is not empty
  int64_t watch_cut_events = 0;   // > 0: each stream breaks after so many events
  int watch_batch = 3;            // events a message
  bool watch_ends_early = false;  // the stream ends with OK before the job
  int64_t watch_skip_seq = 0;     // an event that is left out, against the contract
  int64_t watch_oldest_seq = 1;
  int64_t upload_cut_bytes = 0;  // > 0: each stream breaks after so many bytes of it
  int upload_damage_chunks = 0;  // so many chunks are answered with CHUNK_CHECKSUM
  Error upload_error;
  Error dataset_error;           // of a CreateDataset that only validates
  int dataset_polls = 0;         // GetDataset answers INGESTING so often
  Error dataset_failure;         // then FAILED with this reason
  int32_t dataset_version = 0;   // newest; 0: there is no dataset
  bool dataset_changes = false;  // each CreateDataset makes a version
  int gets_max = -1;             // >= 0: so many jobs are told, then none is found
  bool serving = true;
  std::string backup_fault;  // "digest", "early", "path"
  std::vector<v1::CollectGarbageRequest> collections;
  bool garbage = true;  // there is some
  v1::JobPlan plan;

  // --- what was seen
  std::vector<v1::SubmitJobRequest> submits;
  std::vector<double> fork_deadlines_s;  // how long each fork would have been waited for
  std::vector<v1::SubmitArrayRequest> array_submits;
  std::vector<v1::ListJobsRequest> lists;
  std::vector<std::string> array_changes;  // "CancelArray"
  std::vector<v1::PlanJobRequest> plans;
  std::vector<v1::RetryJobRequest> retries;
  std::vector<v1::ForkJobRequest> forks;
  std::vector<int64_t> watch_after;
  std::map<std::string, std::string> uploads;  // sha256 -> committed bytes
  std::map<std::string, bool> complete;
  std::set<std::string> upload_writers;  // files that an open stream uploads now
  std::string upload_name;               // of the last stream
  int64_t upload_streams = 0;
  int64_t upload_bytes = 0;  // all that came, also again
  std::vector<std::string> contract_breaks;
  v1::CreateDatasetRequest created;
  std::vector<v1::PredictRequest> predicts;
  std::vector<std::string> authorizations;  // of each unary job call
};

class FakeServer {
 public:
  FakeServer();
  ~FakeServer();
  FakeState& state() { return *state_; }
  std::string address() const { return "unix:" + socket_.string(); }
  const std::filesystem::path& folder() const { return folder_; }
  Connection connection() const;
  /// Stops listening; start() again on the same socket.
  void stop();
  void start();

 private:
  struct Services;
  std::filesystem::path folder_;
  std::filesystem::path socket_;
  std::unique_ptr<FakeState> state_;
  std::unique_ptr<Services> services_;
};

/// "projects/default/jobs/ID" in a state, with `count` events that end in that state if it is
/// terminal: RUNNING, then metrics with steps 1, 2, ...
void add_job(FakeState& state, const std::string& id, v1::JobState job_state, int count);

}  // namespace trainyard::client
