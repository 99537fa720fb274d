#include "tests/client/fake_server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <tuple>

#include "proto/metrics/packed_metrics.h"
#include "src/base/crc32c.h"
#include "src/base/mutex.h"
#include "src/base/sha256.h"
#include "tests/client/fake_answer.h"
#include "tests/client/fake_people.h"
#include "trainyard/v1/dataset_service.grpc.pb.h"
#include "trainyard/v1/job_service.grpc.pb.h"
#include "trainyard/v1/model_service.grpc.pb.h"
#include "trainyard/v1/system_service.grpc.pb.h"

namespace trainyard::client {
namespace {

const grpc::Status kBroken(grpc::StatusCode::UNAVAILABLE, "connection reset by a test");

/// Sends messages one after another, then ends with a status. With `stays` it plays a running job
/// and ends only when the client has left.
template <typename Message>
class StreamOut final : public grpc::ServerWriteReactor<Message> {
 public:
  StreamOut(std::vector<Message> messages, grpc::Status end, bool stays)
      : messages_(std::move(messages)), end_(std::move(end)), stays_(stays) {
    write_next();
  }
  void OnWriteDone(bool ok) override {
    if (ok) return write_next();
    end(kBroken);
  }
  void OnCancel() override {
    const MutexLock lock(mu_);
    left_ = true;
    if (waits_) end(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  void write_next() {
    if (next_ < messages_.size()) return this->StartWrite(&messages_[next_++]);
    const MutexLock lock(mu_);
    waits_ = stays_ && !left_;
    if (!waits_) end(end_);
  }
  void end(const grpc::Status& status) {
    if (!ended_.exchange(true)) this->Finish(status);
  }
  std::vector<Message> messages_;
  size_t next_ = 0;
  grpc::Status end_;
  bool stays_;
  Mutex mu_;
  bool waits_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool left_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::atomic<bool> ended_ = false;
};

class Jobs final : public v1::JobService::CallbackService {
 public:
  explicit Jobs(FakeState& s) : s_(s) {}
  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request, v1::Job* job) override {
    const std::scoped_lock lock(s_.mu);
    return answer(context, submit(*request, job));
  }
  grpc::ServerUnaryReactor* ListQueue(grpc::CallbackServerContext* context,
                                      const v1::ListQueueRequest*,
                                      v1::ListQueueResponse* response) override {
    for (const char* name :
         {"projects/default/jobs/digits-1", "", "projects/vision/jobs/digits-1"}) {
      v1::QueuedJob& job = *response->add_jobs();
      job.set_name(name);
      job.set_position(response->jobs_size());
      job.set_other_project(job.name().empty());
    }
    response->set_waiting(3);
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* job) override {
    const std::scoped_lock lock(s_.mu);
    const auto auth = context->client_metadata().find("authorization");
    s_.authorizations.push_back(auth == context->client_metadata().end()
                                    ? ""
                                    : std::string(auth->second.data(), auth->second.size()));
    if (s_.gets_max == 0) {
      return answer(context, refuse(ErrorCode::kNotFound, "JOB_NOT_FOUND", "it is gone"));
    }
    if (s_.gets_max > 0) --s_.gets_max;
    return answer(context, find(request->name(), job));
  }
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override {
    const std::scoped_lock lock(s_.mu);
    s_.lists.push_back(*request);
    std::vector<const v1::Job*> jobs;
    for (const auto& [name, job] : s_.jobs) {
      if (request->no_members() && !job.array().empty()) continue;
      if (!request->array().empty() && !job.array().ends_with(request->array())) continue;
      jobs.push_back(&job);
    }
    // Returns one job per page, so that the client has to request further pages.
    const size_t index = request->page_token().empty() ? 0 : std::stoul(request->page_token());
    if (index < jobs.size()) {
      *response->add_jobs() = *jobs[index];
      if (index + 1 < jobs.size()) response->set_next_page_token(std::to_string(index + 1));
    }
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* SubmitArray(grpc::CallbackServerContext* context,
                                        const v1::SubmitArrayRequest* request,
                                        v1::JobArray* array) override {
    const std::scoped_lock lock(s_.mu);
    s_.array_submits.push_back(*request);
    if (!s_.submit_error.reason.empty()) return answer(context, to_status(s_.submit_error));
    array->set_name("projects/default/arrays/" +
                    (request->array_id().empty() ? "a-made1" : request->array_id()));
    *array->mutable_spec() = request->spec();
    *array->mutable_array() = request->array();
    array->set_size(3);
    if (!request->validate_only()) {
      array->set_uid("u-2");
      s_.arrays[array->name()] = *array;
    }
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* GetArray(grpc::CallbackServerContext* context,
                                     const v1::GetArrayRequest* request,
                                     v1::JobArray* array) override {
    const std::scoped_lock lock(s_.mu);
    return answer(context, find_array(request->name(), array));
  }
  grpc::ServerUnaryReactor* ListArrays(grpc::CallbackServerContext* context,
                                       const v1::ListArraysRequest*,
                                       v1::ListArraysResponse* response) override {
    const std::scoped_lock lock(s_.mu);
    for (const auto& [name, array] : s_.arrays) *response->add_arrays() = array;
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* CancelArray(grpc::CallbackServerContext* context,
                                        const v1::CancelArrayRequest* request,
                                        v1::JobArray* array) override {
    return change_array(context, "CancelArray", request->name(), array);
  }
  grpc::ServerUnaryReactor* PauseArray(grpc::CallbackServerContext* context,
                                       const v1::PauseArrayRequest* request,
                                       v1::JobArray* array) override {
    return change_array(context, "PauseArray", request->name(), array);
  }
  grpc::ServerUnaryReactor* ResumeArray(grpc::CallbackServerContext* context,
                                        const v1::ResumeArrayRequest* request,
                                        v1::JobArray* array) override {
    return change_array(context, "ResumeArray", request->name(), array);
  }
  grpc::ServerUnaryReactor* DeleteArray(grpc::CallbackServerContext* context,
                                        const v1::DeleteArrayRequest* request,
                                        google::protobuf::Empty*) override {
    v1::JobArray array;
    grpc::ServerUnaryReactor* const reactor =
        change_array(context, "DeleteArray", request->name(), &array);
    const std::scoped_lock lock(s_.mu);
    s_.arrays.erase(request->name());
    return reactor;
  }
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext*, const v1::WatchJobRequest* request) override {
    const std::scoped_lock lock(s_.mu);
    s_.watch_after.push_back(request->after());
    std::vector<v1::WatchJobResponse> out(1);
    const grpc::Status found = find(request->name(), out[0].mutable_start()->mutable_job());
    if (!found.ok()) return new StreamOut<v1::WatchJobResponse>({}, found, false);
    const std::vector<v1::Event>& events = s_.events[request->name()];
    out[0].mutable_start()->set_oldest_seq(events.empty() ? 0 : s_.watch_oldest_seq);
    out[0].mutable_start()->set_newest_seq(static_cast<int64_t>(events.size()));
    bool ended = false;
    int64_t sent = 0;
    for (const v1::Event& event : events) {
      if (event.seq() <= request->after() || event.seq() == s_.watch_skip_seq) continue;
      if (out.back().has_start() || out.back().events_size() == s_.watch_batch) out.emplace_back();
      v1::Event& sent_event = *out.back().add_events();
      sent_event = event;
      if (request->packed()) pack_metrics(sent_event);
      ended = event.has_state() && event.state().state() >= v1::SUCCEEDED;
      if (++sent == s_.watch_cut_events && !ended) {
        return new StreamOut<v1::WatchJobResponse>(std::move(out), kBroken, false);
      }
    }
    const bool stays = !ended && !s_.watch_ends_early;
    return new StreamOut<v1::WatchJobResponse>(std::move(out), grpc::Status::OK, stays);
  }
  grpc::ServerUnaryReactor* PlanJob(grpc::CallbackServerContext* context,
                                    const v1::PlanJobRequest* request, v1::JobPlan* plan) override {
    const std::scoped_lock lock(s_.mu);
    s_.plans.push_back(*request);
    *plan = s_.plan;
    if (request->dump() != v1::PlanJobRequest::DUMP_UNSPECIFIED) plan->set_dump("the dump\n");
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request, v1::Job* job) override {
    const std::scoped_lock lock(s_.mu);
    return answer(context, find(request->name(), job));
  }
  grpc::ServerUnaryReactor* PauseJob(grpc::CallbackServerContext* context,
                                     const v1::PauseJobRequest* request, v1::Job* job) override {
    const std::scoped_lock lock(s_.mu);
    const grpc::Status found = find(request->name(), job);
    if (found.ok() && job->state() == v1::QUEUED) job->set_state(v1::PAUSED);
    return answer(context, found);
  }
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context,
                                      const v1::ResumeJobRequest* request, v1::Job* job) override {
    const std::scoped_lock lock(s_.mu);
    const grpc::Status found = find(request->name(), job);
    if (found.ok() && job->state() == v1::PAUSED) job->set_state(v1::QUEUED);
    return answer(context, found);
  }
  grpc::ServerUnaryReactor* RetryJob(grpc::CallbackServerContext* context,
                                     const v1::RetryJobRequest* request, v1::Job* job) override {
    const std::scoped_lock lock(s_.mu);
    s_.retries.push_back(*request);
    const grpc::Status found = find(request->name(), job);
    job->set_name("projects/default/jobs/retried");
    job->mutable_origin()->set_job(request->name());
    job->mutable_origin()->set_step(request->from_start() ? 0 : 300);
    return answer(context, found);
  }
  grpc::ServerUnaryReactor* ForkJob(grpc::CallbackServerContext* context,
                                    const v1::ForkJobRequest* request, v1::Job* job) override {
    const std::scoped_lock lock(s_.mu);
    s_.forks.push_back(*request);
    const std::chrono::duration<double> left =
        context->deadline() - std::chrono::system_clock::now();
    s_.fork_deadlines_s.push_back(left.count());
    const grpc::Status found = find(request->name(), job);
    job->set_name("projects/default/jobs/forked");
    job->mutable_origin()->set_job(request->name());
    job->mutable_origin()->set_step(request->step());
    if (request->has_spec()) job->mutable_origin()->add_changes("recipe.epochs: 3 becomes 5");
    return answer(context, found);
  }
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest*,
                                            v1::ListCheckpointsResponse* response) override {
    for (const int64_t step : {1200, 900}) {
      v1::Checkpoint& c = *response->add_checkpoints();
      c.set_step(step);
      c.set_size_bytes(3 << 20);
    }
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* SetJobPriority(grpc::CallbackServerContext* context,
                                           const v1::SetJobPriorityRequest* request,
                                           v1::Job* job) override {
    const std::scoped_lock lock(s_.mu);
    const grpc::Status found = find(request->name(), job);
    if (found.ok()) {
      job->set_priority(request->priority());
      s_.jobs[request->name()].set_priority(request->priority());
    }
    return answer(context, found);
  }
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      google::protobuf::Empty*) override {
    const std::scoped_lock lock(s_.mu);
    v1::Job job;
    const grpc::Status found = find(request->name(), &job);
    if (!found.ok()) return answer(context, found);
    if (job.state() < v1::SUCCEEDED) {
      return answer(context, refuse(ErrorCode::kFailedPrecondition, "JOB_STATE_CONFLICT",
                                    "the job has not ended"));
    }
    s_.jobs.erase(request->name());
    return answer(context, grpc::Status::OK);
  }

 private:
  grpc::Status find_array(const std::string& name, v1::JobArray* array) {
    const auto found = s_.arrays.find(name);
    if (found == s_.arrays.end())
      return refuse(ErrorCode::kNotFound, "ARRAY_NOT_FOUND", "there is no array " + name);
    *array = found->second;
    return grpc::Status::OK;
  }
  grpc::ServerUnaryReactor* change_array(grpc::CallbackServerContext* context, const char* method,
                                         const std::string& name, v1::JobArray* array) {
    const std::scoped_lock lock(s_.mu);
    s_.array_changes.emplace_back(method);
    return answer(context, find_array(name, array));
  }
  grpc::Status submit(const v1::SubmitJobRequest& request, v1::Job* job) {
    s_.submits.push_back(request);
    if (s_.submit_unavailable > 0) {
      --s_.submit_unavailable;
      return kBroken;
    }
    if (!s_.submit_error.reason.empty()) return to_status(s_.submit_error);
    const std::string id = request.job_id().empty() ? "job-made1" : request.job_id();
    job->set_name("projects/default/jobs/" + id);
    *job->mutable_spec() = request.spec();
    job->set_state(v1::QUEUED);
    job->mutable_plan()->set_parameter_count(1234567);
    job->mutable_plan()->set_steps_total(100);
    job->mutable_plan()->set_steps_per_epoch(10);
    if (request.validate_only()) return grpc::Status::OK;
    job->set_uid("u-1");
    if (s_.jobs.count(job->name()) == 0) s_.jobs[job->name()] = *job;
    return grpc::Status::OK;
  }
  grpc::Status find(const std::string& name, v1::Job* job) {
    const auto found = s_.jobs.find(name);
    if (found == s_.jobs.end())
      return refuse(ErrorCode::kNotFound, "JOB_NOT_FOUND", "there is no job " + name);
    *job = found->second;
    return grpc::Status::OK;
  }
  FakeState& s_;
};

/// One UploadFile stream; checks that the client keeps to the API's contract.
class UploadIn final : public grpc::ServerReadReactor<v1::UploadFileRequest> {
 public:
  UploadIn(FakeState& s, v1::Upload* upload) : s_(s), upload_(upload) {
    const std::scoped_lock lock(s_.mu);
    ++s_.upload_streams;
    StartRead(&message_);
  }
  void OnReadDone(bool ok) override {
    const std::scoped_lock lock(s_.mu);
    std::optional<grpc::Status> end;
    if (ok) {
      end = take();
    } else {
      end = refuse(ErrorCode::kAborted, "UPLOAD_PAUSED", "the stream ended without finish");
    }
    if (!end) return StartRead(&message_);
    if (writes_) s_.upload_writers.erase(start_.sha256());
    Finish(*end);
  }
  void OnDone() override { delete this; }

 private:
  /// Handles a message. Returns a status if the stream is over.
  std::optional<grpc::Status> take() {
    if (!started_) return take_start();
    return message_.has_finish() ? take_finish() : take_chunk();
  }
  std::optional<grpc::Status> take_start() {
    started_ = true;
    start_ = message_.start();
    s_.upload_name = start_.sha256();
    if (!message_.has_start()) {
      s_.contract_breaks.push_back("the first message is no start");
      return refuse(ErrorCode::kInvalidArgument, "REQUEST_MALFORMED", "no start");
    }
    if (!s_.upload_error.reason.empty()) return to_status(s_.upload_error);
    writes_ = s_.upload_writers.insert(start_.sha256()).second;
    if (!writes_) return refuse(ErrorCode::kAborted, "UPLOAD_BUSY", "another stream uploads it");
    const std::string& have = s_.uploads[start_.sha256()];
    if (start_.offset() == static_cast<int64_t>(have.size())) return std::nullopt;
    s_.contract_breaks.push_back("start at " + std::to_string(start_.offset()) + ", committed " +
                                 std::to_string(have.size()));
    return refuse(ErrorCode::kOutOfRange, "UPLOAD_OFFSET_MISMATCH", "offset");
  }
  std::optional<grpc::Status> take_chunk() {
    std::string& have = s_.uploads[start_.sha256()];
    const auto& chunk = message_.chunk();
    const auto size = static_cast<int64_t>(chunk.data().size());
    s_.upload_bytes += size;
    if (chunk.offset() != static_cast<int64_t>(have.size()) || size > (1 << 20) ||
        crc32c(chunk.data()) != chunk.crc32c()) {
      s_.contract_breaks.push_back("a chunk at " + std::to_string(chunk.offset()));
    }
    if (s_.upload_damage_chunks > 0) {
      --s_.upload_damage_chunks;
      return refuse(ErrorCode::kDataLoss, "CHUNK_CHECKSUM_MISMATCH", "damaged on the way");
    }
    have += chunk.data();
    taken_ += size;
    if (s_.upload_cut_bytes > 0 && taken_ >= s_.upload_cut_bytes) return kBroken;
    return std::nullopt;
  }
  grpc::Status take_finish() {
    std::string& have = s_.uploads[start_.sha256()];
    const std::string& named = message_.finish().sha256();
    const std::string expected = named.empty() ? start_.sha256() : named;
    if (static_cast<int64_t>(have.size()) != start_.size_bytes() || sha256_hex(have) != expected) {
      have.clear();
      return refuse(ErrorCode::kInvalidArgument, "CONTENT_HASH_MISMATCH", "digest");
    }
    if (expected != start_.sha256()) {
      s_.uploads[expected] = std::move(have);
      s_.uploads.erase(start_.sha256());
    }
    s_.complete[expected] = true;
    upload_->set_complete(true);
    upload_->set_committed_size(start_.size_bytes());
    return grpc::Status::OK;
  }
  FakeState& s_;
  v1::Upload* upload_;
  v1::UploadFileRequest message_;
  v1::UploadFileRequest::Start start_;
  bool started_ = false;
  bool writes_ = false;  // this stream's file is in upload_writers
  int64_t taken_ = 0;
};

class Datasets final : public v1::DatasetService::CallbackService {
 public:
  explicit Datasets(FakeState& s) : s_(s) {}
  grpc::ServerReadReactor<v1::UploadFileRequest>* UploadFile(grpc::CallbackServerContext*,
                                                             v1::Upload* upload) override {
    return new UploadIn(s_, upload);
  }
  grpc::ServerUnaryReactor* GetUpload(grpc::CallbackServerContext* context,
                                      const v1::GetUploadRequest* request,
                                      v1::Upload* upload) override {
    const std::scoped_lock lock(s_.mu);
    const std::string sha256 = request->name().substr(request->name().rfind('/') + 1);
    upload->set_name(request->name());
    const auto found = s_.uploads.find(sha256);
    if (found != s_.uploads.end())
      upload->set_committed_size(static_cast<int64_t>(found->second.size()));
    upload->set_complete(s_.complete.count(sha256) > 0);
    upload->set_size_is_new(
        request->size_bytes() > 0 && std::ranges::none_of(s_.complete, [&](const auto& complete) {
          return std::ssize(s_.uploads[complete.first]) == request->size_bytes();
        }));
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* CreateDataset(grpc::CallbackServerContext* context,
                                          const v1::CreateDatasetRequest* request,
                                          v1::Dataset* dataset) override {
    const std::scoped_lock lock(s_.mu);
    if (request->validate_only()) {
      return answer(context, s_.dataset_error.reason.empty() ? grpc::Status::OK
                                                             : to_status(s_.dataset_error));
    }
    s_.created = *request;
    if (s_.dataset_changes || s_.dataset_version == 0) ++s_.dataset_version;
    for (const auto& source : request->spec().sources()) {
      if (s_.complete.count(source.sha256()) == 0) {
        return answer(context,
                      refuse(ErrorCode::kFailedPrecondition, "UPLOAD_INCOMPLETE", source.sha256()));
      }
    }
    if (s_.dataset_late-- > 0) return answer(context, late());
    fill(dataset);
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* GetDataset(grpc::CallbackServerContext* context,
                                       const v1::GetDatasetRequest*,
                                       v1::Dataset* dataset) override {
    const std::scoped_lock lock(s_.mu);
    if (s_.dataset_version == 0) {
      return answer(context, refuse(ErrorCode::kNotFound, "DATASET_NOT_FOUND", "no dataset"));
    }
    if (s_.dataset_late-- > 0) return answer(context, late());
    fill(dataset);
    return answer(context, grpc::Status::OK);
  }

 private:
  static grpc::Status late() { return {grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"}; }
  void fill(v1::Dataset* dataset) {
    const std::string id =
        s_.created.dataset_id().empty() ? "d-0123456789abcdef" : s_.created.dataset_id();
    dataset->set_name("projects/default/datasets/" + id + "@" + std::to_string(s_.dataset_version));
    dataset->set_version(s_.dataset_version);
    if (s_.dataset_polls-- > 0) {
      dataset->set_state(v1::Dataset::INGESTING);
    } else if (!s_.dataset_failure.reason.empty()) {
      dataset->set_state(v1::Dataset::FAILED);
      dataset->set_reason(s_.dataset_failure.reason);
      dataset->set_message(s_.dataset_failure.message);
    } else {
      dataset->set_state(v1::Dataset::READY);
    }
  }
  FakeState& s_;
};

class Models final : public v1::ModelService::CallbackService {
 public:
  explicit Models(FakeState& s) : s_(s) {}
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::Model* model) override {
    const std::scoped_lock lock(s_.mu);
    const auto found = s_.models.find(request->name());
    if (found == s_.models.end()) {
      return answer(context,
                    refuse(ErrorCode::kNotFound, "MODEL_NOT_FOUND", "there is no such model"));
    }
    *model = found->second;
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerWriteReactor<v1::DownloadModelResponse>* DownloadModel(
      grpc::CallbackServerContext*, const v1::DownloadModelRequest*) override {
    const std::scoped_lock lock(s_.mu);
    auto files = s_.model_files;
    if (!s_.odd_file_name.empty()) files[s_.odd_file_name] = "x";
    std::vector<v1::DownloadModelResponse> out;
    for (const auto& [name, content] : files) {
      auto* header = out.emplace_back().mutable_header();
      header->set_filename(name);
      header->set_size_bytes(static_cast<int64_t>(content.size()));
      header->set_sha256(sha256_hex(content));
      for (size_t at = 0; at < content.size(); at += 1000) {
        std::string data = content.substr(at, 1000);
        if (s_.damage_model_files) data[0] = static_cast<char>(data[0] ^ 1);
        out.emplace_back().set_data(data);
      }
    }
    return new StreamOut<v1::DownloadModelResponse>(std::move(out), grpc::Status::OK, false);
  }
  /// Predicts class "b" with probability 0.75 for each row.
  grpc::ServerUnaryReactor* Predict(grpc::CallbackServerContext* context,
                                    const v1::PredictRequest* request,
                                    v1::PredictResponse* response) override {
    const std::scoped_lock lock(s_.mu);
    s_.predicts.push_back(*request);
    response->set_classification(true);
    if (!s_.many_classes) {
      response->add_classes("a");
      response->add_classes("b");
    }
    for (const char c : request->csv()) {
      if (c != '\n') continue;
      auto* p = response->add_predictions();
      p->set_label("b");
      p->set_label_index(1);
      if (s_.many_classes) {
        for (const auto& [index, name, share] : {std::tuple(1, "b", 0.75f), {70000, "z", 0.125f}}) {
          p->add_top_indices(index);
          p->add_top_labels(name);
          p->add_probabilities(share);
        }
        continue;
      }
      p->add_probabilities(0.25f);
      p->add_probabilities(0.75f);
    }
    return answer(context, grpc::Status::OK);
  }

 private:
  FakeState& s_;
};

class System final : public v1::SystemService::CallbackService {
 public:
  explicit System(FakeState& s) : s_(s) {}
  grpc::ServerWriteReactor<v1::BackupResponse>* Backup(grpc::CallbackServerContext*,
                                                       const v1::BackupRequest*) override {
    const std::scoped_lock lock(s_.mu);
    std::vector<v1::BackupResponse> messages;
    const auto send_file = [&](const std::string& path, const std::string& content) {
      v1::BackupResponse::FileHeader& header = *messages.emplace_back().mutable_header();
      header.set_path(path);
      header.set_size_bytes(static_cast<int64_t>(content.size()));
      messages.emplace_back().set_data(content);
      messages.emplace_back().mutable_end()->set_sha256(
          sha256_hex(s_.backup_fault == "digest" ? "other" : content));
    };
    messages.emplace_back().mutable_progress()->set_store_bytes(9);
    send_file(s_.backup_fault == "path" ? "../evil" : "uploads/one", "content");
    send_file("trainyard.db", "the store");
    if (s_.backup_fault != "early") {
      v1::BackupResponse::Summary& summary = *messages.emplace_back().mutable_summary();
      summary.set_format_version(1);
      summary.set_server_version("9.9.9");
      summary.set_file_count(2);
      summary.set_size_bytes(16);
      summary.add_warnings("model \x1b[31mlost: its files are missing");
    }
    return new StreamOut<v1::BackupResponse>(std::move(messages), grpc::Status::OK, false);
  }
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest*,
                                          v1::ServerInfo* info) override {
    info->set_version("9.9.9");
    info->add_warnings("SQLite is \x1b[31mold");
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* CollectGarbage(grpc::CallbackServerContext* context,
                                           const v1::CollectGarbageRequest* request,
                                           v1::CollectGarbageResponse* response) override {
    const std::scoped_lock lock(s_.mu);
    s_.collections.push_back(*request);
    if (!s_.garbage) return answer(context, grpc::Status::OK);
    auto* checkpoints = response->add_items();
    checkpoints->set_kind(v1::CollectGarbageResponse::Item::CHECKPOINTS);
    checkpoints->set_name("projects/default/jobs/digits-1");
    checkpoints->set_reason("SUCCEEDED 9 days ago, its model is kept");
    checkpoints->set_freed_bytes(1 << 20);
    checkpoints->set_shared_bytes(2 << 20);
    auto* files = response->add_items();
    files->set_kind(v1::CollectGarbageResponse::Item::FILES);
    files->set_name("uploads/\x1b[31mnotes");
    files->set_reason("nothing refers to it");
    files->set_freed_bytes(1 << 20);
    response->set_freed_bytes(2 << 20);
    if (!request->dry_run()) response->add_warnings("jobs/\x1b[31mx: it stays");
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* ListAudit(grpc::CallbackServerContext* context,
                                      const v1::ListAuditRequest* request,
                                      v1::ListAuditResponse* response) override {
    const std::scoped_lock lock(s_.mu);
    s_.audits.push_back(*request);
    const bool first = request->page_token().empty();
    for (int i = 0; i < std::min(request->page_size(), 30); ++i) {
      v1::AuditEntry& entry = *response->add_entries();
      entry.set_number((first ? 60 : 30) - i);
      entry.mutable_time()->set_seconds(1'795'000'000);
      entry.set_caller("ada\x1b[31m");
      entry.set_address("unix");
      entry.set_action("CancelJob");
      entry.set_object("projects/default/jobs/digits-1");
      entry.set_result("OK");
    }
    if (first) response->set_next_page_token("more");
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* SetQuota(grpc::CallbackServerContext* context,
                                     const v1::SetQuotaRequest* request,
                                     v1::Quota* response) override {
    const std::scoped_lock lock(s_.mu);
    s_.quotas.push_back(*request);
    response->set_kind(request->kind());
    response->set_project(request->project());
    response->set_person(request->person());
    response->set_limit(request->limit());
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* ListQuotas(grpc::CallbackServerContext* context,
                                       const v1::ListQuotasRequest*,
                                       v1::ListQuotasResponse* response) override {
    v1::Quota& hours = *response->add_quotas();
    hours.set_kind(v1::Quota::DEVICE_HOURS);
    hours.set_person("ada\x1b[31m");
    hours.set_limit(500);
    hours.set_used(12.5);
    v1::Quota& bytes = *response->add_quotas();
    bytes.set_kind(v1::Quota::STORED_BYTES);
    bytes.set_project("projects/vision");
    bytes.set_person("ada");
    bytes.set_limit(int64_t{200} << 30);
    bytes.set_used(1 << 30);
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* GetUsage(grpc::CallbackServerContext* context,
                                     const v1::GetUsageRequest* request,
                                     v1::GetUsageResponse* response) override {
    const std::scoped_lock lock(s_.mu);
    s_.usages.push_back(*request);
    v1::UsageRow& gpu = *response->add_rows();
    gpu.set_person("ada\x1b[31m");
    gpu.set_device_kind("gpu");
    gpu.set_device_seconds(7200);
    gpu.set_reserved_device_seconds(1800);
    gpu.set_energy_joules(3.6e6);
    gpu.set_metered_device_seconds(3600);
    gpu.set_cost(4);
    gpu.set_priced_device_seconds(7200);
    v1::UsageRow& cpu = *response->add_rows();
    cpu.set_person("bob, \"b\"");
    cpu.set_device_kind("cpu");
    cpu.set_device_seconds(90);
    return answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest*,
                                        v1::ListDevicesResponse* response) override {
    auto* cpu = response->add_devices();
    cpu->set_name("devices/cpu");
    cpu->set_kind(v1::Device::CPU);
    cpu->set_health(v1::Device::HEALTHY);
    v1::DeviceUse& slow = *cpu->add_uses();
    slow.set_job("projects/default/jobs/digits-1");
    slow.set_planned_bytes(1 << 20);
    slow.set_forecast_share(0.5);
    slow.set_bound_share(0.25);
    slow.set_held_back_by("1 other job on the device");
    cpu->add_uses()->set_job("projects/default/jobs/new-1");  // a job whose speed is not known yet
    cpu->mutable_uses(1)->set_held_back_by("data");
    cpu->add_uses()->set_job("projects/vision/jobs/digits-1");
    cpu->add_uses()->set_other_project(true);
    cpu->mutable_uses(3)->set_planned_bytes(2 << 20);
    v1::ProjectDevices& limited = *response->add_project_devices();
    limited.set_project("projects/vision");
    limited.add_devices("devices/cpu");
    limited.add_devices("gpu");
    response->set_note("no GPU here");
    return answer(context, grpc::Status::OK);
  }

 private:
  FakeState& s_;
};

}  // namespace

struct FakeServer::Services {
  explicit Services(FakeState& state)
      : jobs(state), datasets(state), models(state), system(state), people(state) {}
  Jobs jobs;
  Datasets datasets;
  Models models;
  System system;
  FakePeople people;
  std::unique_ptr<grpc::Server> server;
};

// Uses gRPC's callback API, as the real server does: the synchronous one of gRPC 1.51 sometimes
// sleeps for 10 s at a large message.
FakeServer::FakeServer() : state_(std::make_unique<FakeState>()) {
  std::string folder = (std::filesystem::temp_directory_path() / "trainyard-fake-XXXXXX").string();
  TRAINYARD_CHECK(::mkdtemp(folder.data()) != nullptr, "a temporary folder");
  folder_ = folder;
  socket_ = folder_ / "s.sock";
  services_ = std::make_unique<Services>(*state_);
  start();
}

FakeServer::~FakeServer() {
  stop();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void FakeServer::start() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
  builder.RegisterService(&services_->jobs);
  builder.RegisterService(&services_->datasets);
  builder.RegisterService(&services_->models);
  builder.RegisterService(&services_->system);
  builder.RegisterService(&services_->people);
  services_->server = builder.BuildAndStart();
  TRAINYARD_CHECK(services_->server != nullptr, "the fake server listens on " + address());
  services_->server->GetHealthCheckService()->SetServingStatus(state_->serving);
}

void FakeServer::stop() {
  if (services_->server == nullptr) return;
  services_->server->Shutdown(std::chrono::system_clock::now());
  services_->server->Wait();
  services_->server.reset();
}

Connection FakeServer::connection() const {
  Connection c;
  c.server = address();
  return c;
}

void add_job(FakeState& state, const std::string& id, v1::JobState job_state, int count) {
  const std::scoped_lock lock(state.mu);
  const std::string name = "projects/default/jobs/" + id;
  v1::Job& job = state.jobs[name];
  job.set_name(name);
  job.set_state(job_state);
  job.set_newest_seq(count);
  job.mutable_plan()->set_steps_total(100);
  job.mutable_plan()->set_steps_per_epoch(10);
  for (int seq = 1; seq <= count; ++seq) {
    v1::Event& event = state.events[name].emplace_back();
    event.set_seq(seq);
    event.set_attempt(1);
    event.mutable_time()->set_seconds(1'700'000'000 + seq);
    if (seq == 1) {
      event.mutable_state()->set_state(v1::RUNNING);
      event.mutable_state()->set_device("devices/cpu");
    } else if (seq == count && job_state >= v1::SUCCEEDED) {
      event.mutable_state()->set_state(job_state);
    } else if (seq == 3) {
      event.mutable_log()->set_level(v1::LogLine::WARN);
      event.mutable_log()->set_text("careful \x1b[2J now");
    } else {
      v1::MetricSeries& series = *event.mutable_metrics()->add_series();
      series.set_key("train/loss");
      series.add_steps(seq);
      series.add_values(1.0 / seq);
    }
  }
}

}  // namespace trainyard::client
