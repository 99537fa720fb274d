#include "src/checkpoint/checkpoint_state.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "src/base/json_fields.h"
#include "src/base/sha256.h"

namespace trainyard {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr const char* kReason = "CHECKPOINT_DAMAGED";

}  // namespace

std::string to_state_json(const CheckpointManifest& m) {
  nlohmann::json files = nlohmann::json::object();
  for (size_t i = 0; i < kCheckpointFiles.size(); ++i) {
    files[kCheckpointFiles[i]] = {{"sha256", m.files[i].sha256}, {"bytes", m.files[i].bytes}};
  }
  const nlohmann::json body = {
      {"format", kFormatVersion},    {"step", m.state.step},
      {"seed", m.state.seed},        {"threads", m.state.threads},
      {"backend", m.state.backend},  {"job_digest", m.state.job_digest},
      {"extra", m.state.extra_json}, {"files", std::move(files)},
  };
  const std::string text = body.dump();
  return R"({"state":)" + text + R"(,"sha256":")" + sha256_hex(text) + "\"}\n";
}

Result<CheckpointManifest> parse_state_json(std::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json document, parse_json(text, "state.json", kReason));
  JsonFields outer(document, "state.json", kReason);
  (void)outer.text("sha256");
  JsonFields body(outer.child("state"), "state.json: state", kReason);
  CheckpointManifest m;
  (void)body.integer("format", kFormatVersion, kFormatVersion);
  m.state.step = body.integer("step", 0, std::numeric_limits<int64_t>::max());
  m.state.seed = body.unsigned_integer("seed");
  m.state.threads = static_cast<int>(body.integer("threads", 0, std::numeric_limits<int>::max()));
  m.state.backend = body.text("backend");
  m.state.job_digest = body.text("job_digest");
  m.state.extra_json = body.text("extra");
  JsonFields files(body.child("files"), "state.json: files", kReason);
  for (size_t i = 0; i < kCheckpointFiles.size(); ++i) {
    JsonFields file(files.child(kCheckpointFiles[i]), kCheckpointFiles[i], kReason);
    m.files[i].sha256 = file.text("sha256");
    m.files[i].bytes = file.integer("bytes", 0, std::numeric_limits<int64_t>::max());
    if (Status s = file.finish(); !s.ok()) return std::move(s).error();
  }
  for (JsonFields* fields : {&outer, &body, &files}) {
    if (Status s = fields->finish(); !s.ok()) return std::move(s).error();
  }
  if (to_state_json(m) != text) {
    return make_error(ErrorCode::kInvalidArgument, kReason,
                      "state.json does not match its own digest");
  }
  return m;
}

}  // namespace trainyard
