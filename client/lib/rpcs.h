// client/lib/rpcs.h: a unary call of the API is a row: path, types, when a call is repeated while
// the server is UNAVAILABLE, and its deadline. Client::call() makes them. This file has the rows
// that several files use; a row that one file uses stands in that file.
#pragma once

#include <cstdint>

#include "trainyard/v1/dataset_service.pb.h"
#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/model_service.pb.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::client {

enum class Repeat : uint8_t {
  kNever,
  kSome,           // up to Client::kRepeatsMax times; twice must be as good as once
  kUntilDeadline,  // what a user wants done although the server restarts
};

template <typename RequestType, typename ResponseType>
struct Rpc {
  using Request = RequestType;
  using Response = ResponseType;

  const char* method;  // "JobService/GetJob"
  // A request with a `request_id` is only repeated if it has one, or only validates.
  Repeat repeat = Repeat::kSome;
  int64_t timeout_ms = 0;  // 0: Connection::timeout_ms
};

inline constexpr int64_t kMinuteMs = 60'000;
inline constexpr int64_t kHourMs = 60 * kMinuteMs;
inline constexpr int64_t kArrayMs = 2 * kMinuteMs;  // an array may have ten thousand members

namespace rpc {

inline constexpr Rpc<v1::SubmitJobRequest, v1::Job> kSubmitJob{"JobService/SubmitJob"};
inline constexpr Rpc<v1::GetJobRequest, v1::Job> kGetJob{"JobService/GetJob"};
inline constexpr Rpc<v1::ListJobsRequest, v1::ListJobsResponse> kListJobs{"JobService/ListJobs"};
inline constexpr Rpc<v1::ListQueueRequest, v1::ListQueueResponse> kListQueue{
    "JobService/ListQueue"};
inline constexpr Rpc<v1::ListArraysRequest, v1::ListArraysResponse> kListArrays{
    "JobService/ListArrays"};
inline constexpr Rpc<v1::GetDatasetRequest, v1::Dataset> kGetDataset{"DatasetService/GetDataset"};
inline constexpr Rpc<v1::GetModelRequest, v1::Model> kGetModel{"ModelService/GetModel"};
inline constexpr Rpc<v1::GetServerInfoRequest, v1::ServerInfo> kGetServerInfo{
    "SystemService/GetServerInfo"};

}  // namespace rpc
}  // namespace trainyard::client
