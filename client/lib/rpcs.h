// client/lib/rpcs.h: the unary calls of the API, one row each: path, types, whether the call is
// repeated while the server is UNAVAILABLE, and its timeout. Client::call() executes them.
#pragma once

#include <google/protobuf/empty.pb.h>

#include <cstdint>

#include "trainyard/v1/dataset_service.pb.h"
#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/model_service.pb.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::client {

enum class Repeat : uint8_t {
  kNever,
  kSome,           // up to Client::kRepeatsMax times; the call must be idempotent
  kUntilDeadline,  // for changes that should succeed although the server restarts
};

template <typename RequestType, typename ResponseType>
struct Rpc {
  using Request = RequestType;
  using Response = ResponseType;

  const char* method;  // "JobService/GetJob"
  // A request type with a `request_id` is only repeated if the field is set, or if the request only
  // validates.
  Repeat repeat = Repeat::kSome;
  int64_t timeout_ms = 0;  // 0: Connection::timeout_ms
};

namespace rpc {

using google::protobuf::Empty;

inline constexpr int64_t kMinuteMs = 60'000;
inline constexpr int64_t kHourMs = 60 * kMinuteMs;
inline constexpr int64_t kArrayMs = 2 * kMinuteMs;  // an array may have ten thousand members

inline constexpr Rpc<v1::SubmitJobRequest, v1::Job> kSubmitJob{"JobService/SubmitJob"};
inline constexpr Rpc<v1::PlanJobRequest, v1::JobPlan> kPlanJob{"JobService/PlanJob"};
inline constexpr Rpc<v1::GetJobRequest, v1::Job> kGetJob{"JobService/GetJob"};
inline constexpr Rpc<v1::ListJobsRequest, v1::ListJobsResponse> kListJobs{"JobService/ListJobs"};
inline constexpr Rpc<v1::CancelJobRequest, v1::Job> kCancelJob{"JobService/CancelJob",
                                                               Repeat::kUntilDeadline};
inline constexpr Rpc<v1::PauseJobRequest, v1::Job> kPauseJob{"JobService/PauseJob",
                                                             Repeat::kUntilDeadline};
inline constexpr Rpc<v1::ResumeJobRequest, v1::Job> kResumeJob{"JobService/ResumeJob",
                                                               Repeat::kUntilDeadline};
// For these two calls the server copies a checkpoint, of any size, before it responds.
inline constexpr Rpc<v1::RetryJobRequest, v1::Job> kRetryJob{"JobService/RetryJob", Repeat::kSome,
                                                             kHourMs};
inline constexpr Rpc<v1::ForkJobRequest, v1::Job> kForkJob{"JobService/ForkJob", Repeat::kSome,
                                                           kHourMs};
inline constexpr Rpc<v1::ListQueueRequest, v1::ListQueueResponse> kListQueue{
    "JobService/ListQueue"};
inline constexpr Rpc<v1::ListCheckpointsRequest, v1::ListCheckpointsResponse> kListCheckpoints{
    "JobService/ListCheckpoints"};
inline constexpr Rpc<v1::SetJobPriorityRequest, v1::Job> kSetJobPriority{
    "JobService/SetJobPriority"};
inline constexpr Rpc<v1::DeleteJobRequest, Empty> kDeleteJob{"JobService/DeleteJob",
                                                             Repeat::kNever};
inline constexpr Rpc<v1::SubmitArrayRequest, v1::JobArray> kSubmitArray{"JobService/SubmitArray",
                                                                        Repeat::kSome, kArrayMs};
inline constexpr Rpc<v1::GetArrayRequest, v1::JobArray> kGetArray{"JobService/GetArray"};
inline constexpr Rpc<v1::ListArraysRequest, v1::ListArraysResponse> kListArrays{
    "JobService/ListArrays"};
inline constexpr Rpc<v1::CancelArrayRequest, v1::JobArray> kCancelArray{
    "JobService/CancelArray", Repeat::kUntilDeadline, kArrayMs};
inline constexpr Rpc<v1::PauseArrayRequest, v1::JobArray> kPauseArray{
    "JobService/PauseArray", Repeat::kUntilDeadline, kArrayMs};
inline constexpr Rpc<v1::ResumeArrayRequest, v1::JobArray> kResumeArray{
    "JobService/ResumeArray", Repeat::kUntilDeadline, kArrayMs};
inline constexpr Rpc<v1::DeleteArrayRequest, Empty> kDeleteArray{"JobService/DeleteArray",
                                                                 Repeat::kNever, kArrayMs};

inline constexpr Rpc<v1::GetUploadRequest, v1::Upload> kGetUpload{"DatasetService/GetUpload"};
// Repeating the call with the same content and options returns the same version. The second row is
// for paths on the server, which reads these files before it responds.
inline constexpr Rpc<v1::CreateDatasetRequest, v1::Dataset> kCreateDataset{
    "DatasetService/CreateDataset"};
inline constexpr Rpc<v1::CreateDatasetRequest, v1::Dataset> kCreateDatasetOfServer{
    "DatasetService/CreateDataset", Repeat::kSome, kHourMs};
inline constexpr Rpc<v1::GetDatasetRequest, v1::Dataset> kGetDataset{"DatasetService/GetDataset"};
inline constexpr Rpc<v1::ListDatasetsRequest, v1::ListDatasetsResponse> kListDatasets{
    "DatasetService/ListDatasets"};
inline constexpr Rpc<v1::DeleteDatasetRequest, Empty> kDeleteDataset{"DatasetService/DeleteDataset",
                                                                     Repeat::kNever};

// The server checks the uploaded weights before it responds.
inline constexpr Rpc<v1::CreateModelRequest, v1::Model> kCreateModel{"ModelService/CreateModel"};
inline constexpr Rpc<v1::GetModelRequest, v1::Model> kGetModel{"ModelService/GetModel"};
inline constexpr Rpc<v1::ListModelsRequest, v1::ListModelsResponse> kListModels{
    "ModelService/ListModels"};
inline constexpr Rpc<v1::DeleteModelRequest, Empty> kDeleteModel{"ModelService/DeleteModel",
                                                                 Repeat::kNever};
inline constexpr Rpc<v1::PredictRequest, v1::PredictResponse> kPredict{
    "ModelService/Predict", Repeat::kSome, 2 * kMinuteMs};
inline constexpr Rpc<v1::EvaluateRequest, v1::EvaluateResponse> kEvaluate{"ModelService/Evaluate",
                                                                          Repeat::kSome, kHourMs};

inline constexpr Rpc<v1::GetServerInfoRequest, v1::ServerInfo> kGetServerInfo{
    "SystemService/GetServerInfo"};
inline constexpr Rpc<v1::ListDevicesRequest, v1::ListDevicesResponse> kListDevices{
    "SystemService/ListDevices"};
inline constexpr Rpc<v1::DrainDeviceRequest, v1::Device> kDrainDevice{"SystemService/DrainDevice",
                                                                      Repeat::kUntilDeadline};
inline constexpr Rpc<v1::ResumeDeviceRequest, v1::Device> kResumeDevice{
    "SystemService/ResumeDevice", Repeat::kUntilDeadline};
inline constexpr Rpc<v1::CollectGarbageRequest, v1::CollectGarbageResponse> kCollectGarbage{
    "SystemService/CollectGarbage", Repeat::kNever, kHourMs};

}  // namespace rpc
}  // namespace trainyard::client
