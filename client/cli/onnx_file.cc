#include "client/cli/onnx_file.h"

#include <nlohmann/json.hpp>

#include "client/cli/options.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/onnx/export_model.h"

namespace trainyard::cli {

Status unknown_format(const std::string& format, const std::string& formats) {
  return usage_error("--format: " + quoted_value(format) + ", expected " + formats);
}

Result<int> write_onnx_file(Session& session, const std::filesystem::path& folder,
                            const std::string& file, bool overwrite) {
  ASSIGN_OR_RETURN(const int64_t size, onnx::export_model(user_files(), folder, file, overwrite));
  const nlohmann::ordered_json object = {{"file", file}, {"size_bytes", size}};
  const bool is_json = session.format() == Format::kJson || session.format() == Format::kJsonl;
  session.out().line(is_json ? object.dump() : file);
  session.hint("  " + human_bytes(size));
  return static_cast<int>(client::kExitOk);
}

}  // namespace trainyard::cli
