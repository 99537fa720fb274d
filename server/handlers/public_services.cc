#include "server/handlers/public_services.h"

#include "server/handlers/backup_stream.h"
#include "server/handlers/dataset_handlers.h"
#include "server/handlers/download_stream.h"
#include "server/handlers/generate_stream.h"
#include "server/handlers/job_handlers.h"
#include "server/handlers/model_handlers.h"
#include "server/handlers/read_spec.h"
#include "server/handlers/system_handlers.h"
#include "server/handlers/unary.h"
#include "server/handlers/upload_stream.h"
#include "server/handlers/watch.h"
#include "server/housekeeping/garbage.h"
#include "trainyard/v1/dataset_service.grpc.pb.h"
#include "trainyard/v1/job_service.grpc.pb.h"
#include "trainyard/v1/model_service.grpc.pb.h"
#include "trainyard/v1/system_service.grpc.pb.h"

namespace trainyard::server {
namespace {

using Context = grpc::CallbackServerContext;
using Bytes = grpc::ByteBuffer;
using Unary = grpc::ServerUnaryReactor;

// Every method takes raw bytes (server/rpc/wire.h). A method that is missing here answers
// UNIMPLEMENTED; service_wire_test calls each one.
// clang-format off
using J = v1::JobService;
using RawJobs = J::WithRawCallbackMethod_SubmitJob<J::WithRawCallbackMethod_GetJob<
    J::WithRawCallbackMethod_ListJobs<J::WithRawCallbackMethod_WatchJob<
    J::WithRawCallbackMethod_CancelJob<J::WithRawCallbackMethod_DeleteJob<
    J::WithRawCallbackMethod_PlanJob<J::WithRawCallbackMethod_SetJobPriority<
    J::WithRawCallbackMethod_PauseJob<J::WithRawCallbackMethod_ResumeJob<
    J::WithRawCallbackMethod_RetryJob<J::WithRawCallbackMethod_ForkJob<
    J::WithRawCallbackMethod_ListCheckpoints<J::WithRawCallbackMethod_ReadSpec<
    J::WithRawCallbackMethod_SubmitArray<J::WithRawCallbackMethod_GetArray<
    J::WithRawCallbackMethod_ListArrays<J::WithRawCallbackMethod_CancelArray<
    J::WithRawCallbackMethod_PauseArray<J::WithRawCallbackMethod_ResumeArray<
    J::WithRawCallbackMethod_DeleteArray<
        J::WithRawCallbackMethod_ListQueue<J::Service>>>>>>>>>>>>>>>>>>>>>>;
using D = v1::DatasetService;
using RawDatasets = D::WithRawCallbackMethod_UploadFile<D::WithRawCallbackMethod_GetUpload<
    D::WithRawCallbackMethod_CreateDataset<D::WithRawCallbackMethod_GetDataset<
    D::WithRawCallbackMethod_ListDatasets<D::WithRawCallbackMethod_DeleteDataset<D::Service>>>>>>;
using M = v1::ModelService;
using RawModels = M::WithRawCallbackMethod_CreateModel<M::WithRawCallbackMethod_ListModels<
    M::WithRawCallbackMethod_GetModel<M::WithRawCallbackMethod_DownloadModel<
    M::WithRawCallbackMethod_Predict<M::WithRawCallbackMethod_Generate<
    M::WithRawCallbackMethod_Evaluate<M::WithRawCallbackMethod_DeleteModel<M::Service>>>>>>>>;
using S = v1::SystemService;
using RawSystem = S::WithRawCallbackMethod_GetServerInfo<S::WithRawCallbackMethod_Backup<
    S::WithRawCallbackMethod_ListDevices<S::WithRawCallbackMethod_CollectGarbage<
    S::WithRawCallbackMethod_DrainDevice<S::WithRawCallbackMethod_ResumeDevice<S::Service>>>>>>;
// clang-format on

class Jobs final : public RawJobs {
 public:
  Jobs(ServiceContext& service, int64_t watch_heartbeat_ms)
      : service_(service), handlers_(service), watch_(service, watch_heartbeat_ms) {}
  WatchStreams& watch() { return watch_; }

  Unary* SubmitJob(Context* c, const Bytes* in, Bytes* out) override {
    const std::string caller = caller_of(*c, service_.tokens);
    return serve_later<v1::SubmitJobRequest, v1::Job>(
        service_, "SubmitJob", c, in, out,
        [this, caller](const auto& r, const auto& done, const std::stop_token& stop) {
          handlers_.submit(r, caller, done, stop);
        },
        [this, caller](const auto& r, const auto& done) {
          return handlers_.submit_known(r, caller, done);
        });
  }
  Unary* PlanJob(Context* c, const Bytes* in, Bytes* out) override {
    return serve_later<v1::PlanJobRequest, v1::JobPlan>(
        service_, "PlanJob", c, in, out,
        [this](const auto& r, const auto& done, const std::stop_token& stop) {
          handlers_.plan(r, done, stop);
        });
  }
  Unary* ReadSpec(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::ReadSpecRequest, v1::ReadSpecResponse>(
        service_, "ReadSpec", c, in, out, [](const auto& r) { return read_spec(r); });
  }
  Unary* GetJob(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::GetJobRequest, v1::Job>(service_, "GetJob", c, in, out,
                                             [this](const auto& r) { return handlers_.get(r); });
  }
  Unary* ListJobs(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::ListJobsRequest, v1::ListJobsResponse>(
        service_, "ListJobs", c, in, out,
        [this, caller = caller_of(*c, service_.tokens)](const auto& r) {
          return handlers_.list(r, caller);
        });
  }
  Unary* ListQueue(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::ListQueueRequest, v1::ListQueueResponse>(
        service_, "ListQueue", c, in, out,
        [this](const auto& r) { return handlers_.list_queue(r); });
  }
  grpc::ServerWriteReactor<Bytes>* WatchJob(Context* c, const Bytes* in) override {
    return watch_.open(c, in);
  }
  Unary* CancelJob(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::CancelJobRequest, v1::Job>(
        service_, "CancelJob", c, in, out, [this](const auto& r) { return handlers_.cancel(r); });
  }
  Unary* PauseJob(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::PauseJobRequest, v1::Job>(
        service_, "PauseJob", c, in, out, [this](const auto& r) { return handlers_.pause(r); });
  }
  Unary* ResumeJob(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::ResumeJobRequest, v1::Job>(
        service_, "ResumeJob", c, in, out, [this](const auto& r) { return handlers_.resume(r); });
  }
  Unary* RetryJob(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::RetryJobRequest, v1::Job>(service_, "RetryJob", c, in, out,
                                               [this, caller = caller_of(*c, service_.tokens)](
                                                   const auto& r, const std::stop_token& stop) {
                                                 return handlers_.retry(r, caller, stop);
                                               });
  }
  Unary* ForkJob(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::ForkJobRequest, v1::Job>(service_, "ForkJob", c, in, out,
                                              [this, caller = caller_of(*c, service_.tokens)](
                                                  const auto& r, const std::stop_token& stop) {
                                                return handlers_.fork(r, caller, stop);
                                              });
  }
  Unary* ListCheckpoints(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::ListCheckpointsRequest, v1::ListCheckpointsResponse>(
        service_, "ListCheckpoints", c, in, out,
        [this](const auto& r) { return handlers_.list_checkpoints(r); });
  }
  Unary* SetJobPriority(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::SetJobPriorityRequest, v1::Job>(
        service_, "SetJobPriority", c, in, out,
        [this](const auto& r) { return handlers_.set_priority(r); });
  }
  Unary* SubmitArray(Context* c, const Bytes* in, Bytes* out) override {
    return serve_later<v1::SubmitArrayRequest, v1::JobArray>(
        service_, "SubmitArray", c, in, out,
        [this, caller = caller_of(*c, service_.tokens)](const auto& r, const auto& done,
                                                        const std::stop_token& stop) {
          handlers_.submit_array(r, caller, done, stop);
        },
        nullptr, &service_.arrays);
  }
  Unary* GetArray(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::GetArrayRequest, v1::JobArray>(
        service_, "GetArray", c, in, out, [this](const auto& r) { return handlers_.get_array(r); });
  }
  Unary* ListArrays(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::ListArraysRequest, v1::ListArraysResponse>(
        service_, "ListArrays", c, in, out,
        [this](const auto& r) { return handlers_.list_arrays(r); });
  }
  Unary* CancelArray(Context* c, const Bytes* in, Bytes* out) override {
    return steer_array<v1::CancelArrayRequest>("CancelArray", Steering::kCancel, c, in, out);
  }
  Unary* PauseArray(Context* c, const Bytes* in, Bytes* out) override {
    return steer_array<v1::PauseArrayRequest>("PauseArray", Steering::kPause, c, in, out);
  }
  Unary* ResumeArray(Context* c, const Bytes* in, Bytes* out) override {
    return steer_array<v1::ResumeArrayRequest>("ResumeArray", Steering::kResume, c, in, out);
  }
  Unary* DeleteArray(Context* c, const Bytes* in, Bytes* out) override {
    return serve_empty<v1::DeleteArrayRequest>(
        service_, "DeleteArray", c, in, out,
        [this](const auto& r) { return handlers_.remove_array(r); });
  }
  Unary* DeleteJob(Context* c, const Bytes* in, Bytes* out) override {
    return serve_empty<v1::DeleteJobRequest>(service_, "DeleteJob", c, in, out,
                                             [this](const auto& r) { return handlers_.remove(r); });
  }

 private:
  template <typename Request>
  Unary* steer_array(const char* method, Steering steering, Context* c, const Bytes* in,
                     Bytes* out) {
    return serve_later<Request, v1::JobArray>(service_, method, c, in, out,
                                              [this, steering](const auto& r, const auto& done) {
                                                handlers_.steer_array(r.name(), steering, done);
                                              });
  }

  ServiceContext& service_;
  JobHandlers handlers_;
  WatchStreams watch_;
};

class Datasets final : public RawDatasets {
 public:
  explicit Datasets(ServiceContext& service) : service_(service), handlers_(service) {}
  Uploads& uploads() { return handlers_.uploads(); }

  grpc::ServerReadReactor<Bytes>* UploadFile(Context* c, Bytes* out) override {
    return open_upload_stream(service_, handlers_.uploads(), c, out);
  }
  Unary* GetUpload(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::GetUploadRequest, v1::Upload>(
        service_, "GetUpload", c, in, out,
        [this](const auto& r) { return handlers_.get_upload(r); });
  }
  Unary* CreateDataset(Context* c, const Bytes* in, Bytes* out) override {
    return serve_later<v1::CreateDatasetRequest, v1::Dataset>(
        service_, "CreateDataset", c, in, out,
        [this](const auto& r, auto done) { handlers_.create(r, std::move(done)); });
  }
  Unary* GetDataset(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::GetDatasetRequest, v1::Dataset>(
        service_, "GetDataset", c, in, out, [this](const auto& r) { return handlers_.get(r); });
  }
  Unary* ListDatasets(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::ListDatasetsRequest, v1::ListDatasetsResponse>(
        service_, "ListDatasets", c, in, out, [this](const auto& r) { return handlers_.list(r); });
  }
  Unary* DeleteDataset(Context* c, const Bytes* in, Bytes* out) override {
    return serve_empty<v1::DeleteDatasetRequest>(
        service_, "DeleteDataset", c, in, out,
        [this](const auto& r) { return handlers_.remove(r); });
  }

 private:
  ServiceContext& service_;
  DatasetHandlers handlers_;
};

class Models final : public RawModels {
 public:
  Models(ServiceContext& service, Uploads& uploads)
      : service_(service), handlers_(service, uploads) {}

  Unary* CreateModel(Context* c, const Bytes* in, Bytes* out) override {
    return serve_later<v1::CreateModelRequest, v1::Model>(
        service_, "CreateModel", c, in, out,
        [this](const auto& r, auto done) { handlers_.create(r, std::move(done)); });
  }
  Unary* ListModels(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::ListModelsRequest, v1::ListModelsResponse>(
        service_, "ListModels", c, in, out, [this](const auto& r) { return handlers_.list(r); });
  }
  Unary* GetModel(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::GetModelRequest, v1::Model>(
        service_, "GetModel", c, in, out, [this](const auto& r) { return handlers_.get(r); });
  }
  grpc::ServerWriteReactor<Bytes>* DownloadModel(Context* c, const Bytes* in) override {
    return open_download_stream(service_, handlers_, c, in);
  }
  Unary* Predict(Context* c, const Bytes* in, Bytes* out) override {
    return serve_later<v1::PredictRequest, v1::PredictResponse>(
        service_, "Predict", c, in, out,
        [this](const auto& r, auto done) { handlers_.predict(r, std::move(done)); });
  }
  grpc::ServerWriteReactor<Bytes>* Generate(Context* c, const Bytes* in) override {
    return open_generate_stream(service_, handlers_, c, in);
  }
  Unary* Evaluate(Context* c, const Bytes* in, Bytes* out) override {
    return serve_later<v1::EvaluateRequest, v1::EvaluateResponse>(
        service_, "Evaluate", c, in, out,
        [this](const auto& r, auto done) { handlers_.evaluate(r, std::move(done)); });
  }
  Unary* DeleteModel(Context* c, const Bytes* in, Bytes* out) override {
    return serve_empty<v1::DeleteModelRequest>(
        service_, "DeleteModel", c, in, out, [this](const auto& r) { return handlers_.remove(r); });
  }

 private:
  ServiceContext& service_;
  ModelHandlers handlers_;
};

class System final : public RawSystem {
 public:
  System(ServiceContext& service, Uploads& uploads)
      : service_(service), handlers_(service), garbage_(housekeeping_parts(service), uploads) {}

  Unary* GetServerInfo(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::GetServerInfoRequest, v1::ServerInfo>(
        service_, "GetServerInfo", c, in, out,
        [this](const auto& r) { return handlers_.get_server_info(r); });
  }
  Unary* ListDevices(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::ListDevicesRequest, v1::ListDevicesResponse>(
        service_, "ListDevices", c, in, out,
        [this](const auto& r) { return handlers_.list_devices(r); });
  }
  Unary* DrainDevice(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::DrainDeviceRequest, v1::Device>(
        service_, "DrainDevice", c, in, out,
        [this, caller = caller_of(*c, service_.tokens)](const auto& r) {
          return handlers_.drain_device(r, caller);
        });
  }
  Unary* ResumeDevice(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::ResumeDeviceRequest, v1::Device>(
        service_, "ResumeDevice", c, in, out,
        [this](const auto& r) { return handlers_.resume_device(r); });
  }
  Unary* CollectGarbage(Context* c, const Bytes* in, Bytes* out) override {
    return serve<v1::CollectGarbageRequest, v1::CollectGarbageResponse>(
        service_, "CollectGarbage", c, in, out,
        [this](const auto& r) { return garbage_.collect(r); });
  }
  grpc::ServerWriteReactor<Bytes>* Backup(Context* c, const Bytes* in) override {
    return open_backup_stream(service_, c, in);
  }

 private:
  ServiceContext& service_;
  SystemHandlers handlers_;
  Garbage garbage_;
};

}  // namespace

struct PublicServices::Impl {
  Impl(ServiceContext& service, int64_t watch_heartbeat_ms)
      : jobs(service, watch_heartbeat_ms),
        datasets(service),
        models(service, datasets.uploads()),
        system(service, datasets.uploads()) {}
  Jobs jobs;
  Datasets datasets;
  Models models;
  System system;
};

PublicServices::PublicServices(ServiceContext& service, int64_t watch_heartbeat_ms)
    : impl_(std::make_unique<Impl>(service, watch_heartbeat_ms)) {}
PublicServices::~PublicServices() = default;

std::vector<grpc::Service*> PublicServices::all() const {
  return {&impl_->jobs, &impl_->datasets, &impl_->models, &impl_->system};
}
std::vector<std::string> PublicServices::names() {
  return {J::service_full_name(), D::service_full_name(), M::service_full_name(),
          S::service_full_name()};
}
WatchStreams& PublicServices::watch_streams() { return impl_->jobs.watch(); }

}  // namespace trainyard::server
