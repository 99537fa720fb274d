#include "server/worker/sandbox_message.h"

#include <filesystem>
#include <string>
#include <vector>

#include "src/data/text/subword_training.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard {
namespace {

std::vector<std::filesystem::path> paths_of(
    const google::protobuf::RepeatedPtrField<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

/// A profile that this build does not know is the tightest one.
server::SandboxProfile to_profile(v1::WorkerSandbox::Profile profile) {
  switch (profile) {
    case v1::WorkerSandbox::NONE:
      return server::SandboxProfile::kNone;
    case v1::WorkerSandbox::COMPUTE:
      return server::SandboxProfile::kCompute;
    case v1::WorkerSandbox::TRAIN:
      return server::SandboxProfile::kTrain;
    default:
      return server::SandboxProfile::kParse;
  }
}

}  // namespace

Result<server::Sandbox> read_sandbox(std::string_view bytes) {
  v1::WorkerSandbox message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return make_error(ErrorCode::kFailedPrecondition, "SANDBOX_UNAVAILABLE",
                      "standard input has no sandbox after the secret");
  }
  server::Sandbox sandbox;
  sandbox.profile = to_profile(message.profile());
  sandbox.required = message.required();
  sandbox.readable = paths_of(message.readable());
  sandbox.sources = paths_of(message.sources());
  sandbox.writable = paths_of(message.writable());
  if (message.learns_tokenizer()) sandbox.program = tokenizer_program();
  sandbox.memory_bytes = message.memory_bytes();
  sandbox.file_bytes = message.file_bytes();
  return sandbox;
}

}  // namespace trainyard
