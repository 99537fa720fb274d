// client/lib/rpcs.h: constants that describe unary calls of the API: path, types, when a call is
// repeated while the server is UNAVAILABLE, and deadline. Client::call() makes the calls. This file
// has the constants that several files use; the others are defined in the file that uses them.
#pragma once

#include <cstdint>

#include "trainyard/v1/dataset_service.pb.h"
#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/model_service.pb.h"
#include "trainyard/v1/people_service.pb.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::client {

enum class Repeat : uint8_t {
  kNever,
  kSome,           // up to Client::kRepeatsMax times; the call must be idempotent
  kUntilDeadline,  // for calls that a user wants done although the server restarts
};

template <typename RequestType, typename ResponseType>
struct Rpc {
  using Request = RequestType;
  using Response = ResponseType;

  const char* method;  // "JobService/GetJob"
  // A request type with a `request_id` field is repeated only if the field is set or the request
  // only validates.
  Repeat repeat = Repeat::kSome;
  int64_t timeout_ms = 0;  // 0 means Connection::timeout_ms
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
inline constexpr Rpc<v1::WhoAmIRequest, v1::WhoAmIResponse> kWhoAmI{"PeopleService/WhoAmI"};
inline constexpr Rpc<v1::ListTokensRequest, v1::ListTokensResponse> kListTokens{
    "PeopleService/ListTokens"};
inline constexpr Rpc<v1::RevokeTokenRequest, google::protobuf::Empty> kRevokeToken{
    "PeopleService/RevokeToken", Repeat::kUntilDeadline};

}  // namespace rpc
}  // namespace trainyard::client
