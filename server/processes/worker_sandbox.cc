#include "server/processes/worker_sandbox.h"

#include <algorithm>
#include <system_error>

#include "server/inventory/cpu_device.h"

namespace trainyard::server {
namespace {

// Limits of a training process in addition to twice its plan: stacks, the program's own memory, and
// parts of files that it reads. They stop a process that allocates without end, not one that needs
// a little more than planned.
constexpr int64_t kTrainingBytes = int64_t{2} << 30;
constexpr int64_t kTrainingFileBytes = int64_t{1} << 30;

constexpr int64_t kFileBytesMin = int64_t{64} << 20;

int64_t three_quarters_of_memory() {
  static const int64_t bytes = read_cpu_device({}).memory_bytes / 4 * 3;
  return bytes;
}

bool is_subword(int tokenizer) { return tokenizer == v1::BPE || tokenizer == v1::UNIGRAM; }

}  // namespace

void add_readable(v1::WorkerSandbox& sandbox, const std::filesystem::path& path) {
  if (!path.empty()) sandbox.add_readable(path.string());
}

v1::WorkerSandbox parsing_sandbox() {
  v1::WorkerSandbox sandbox;
  sandbox.set_profile(v1::WorkerSandbox::PARSE);
  sandbox.set_memory_bytes(three_quarters_of_memory());
  return sandbox;
}

void add_scratch(v1::WorkerSandbox& sandbox, const std::filesystem::path& folder) {
  sandbox.add_writable(folder.string());
  std::error_code ec;
  const std::filesystem::space_info space = std::filesystem::space(folder, ec);
  if (ec) return;
  const auto available = static_cast<int64_t>(space.available);
  sandbox.set_file_bytes(std::max(kFileBytesMin, available - available / 16));
}

void add_server_sources(v1::WorkerSandbox& sandbox, const v1::DatasetSpec& spec) {
  for (const v1::DatasetSource& source : spec.sources()) {
    if (!source.server_path().empty()) sandbox.add_sources(source.server_path());
  }
}

bool learns_tokenizer(const v1::DatasetSpec& spec) {
  const google::protobuf::Reflection& fields = *spec.GetReflection();
  const auto* const format = fields.GetOneofFieldDescriptor(
      spec, v1::DatasetSpec::descriptor()->FindOneofByName("format"));
  if (format == nullptr) return false;
  const google::protobuf::Message& options = fields.GetMessage(spec, format);
  const auto* const tokenizer = options.GetDescriptor()->FindFieldByName("tokenizer");
  return tokenizer != nullptr && tokenizer->enum_type() == v1::Tokenizer_descriptor() &&
         is_subword(options.GetReflection()->GetEnumValue(options, tokenizer));
}

v1::WorkerSandbox computing_sandbox(const std::string& device) {
  v1::WorkerSandbox sandbox;
  if (device != "devices/cpu") return sandbox;
  sandbox.set_profile(v1::WorkerSandbox::COMPUTE);
  sandbox.set_memory_bytes(three_quarters_of_memory());
  return sandbox;
}

v1::WorkerSandbox training_sandbox(const std::filesystem::path& folder, int64_t planned_bytes) {
  v1::WorkerSandbox sandbox;
  sandbox.set_profile(v1::WorkerSandbox::TRAIN);
  sandbox.add_writable(folder.string());
  sandbox.set_memory_bytes(2 * planned_bytes + kTrainingBytes);
  sandbox.set_file_bytes(2 * planned_bytes + kTrainingFileBytes);
  return sandbox;
}

}  // namespace trainyard::server
