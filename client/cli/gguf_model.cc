#include "client/cli/gguf_model.h"

#include "proto/spec/dataset_format.h"
#include "src/base/text.h"
#include "src/pretrained/gguf/gguf_file.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

}  // namespace

bool names_gguf(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return false;
  return lower(path.extension().string()) == ".gguf" || is_gguf_file(path);
}

Result<ModelFolder> model_folder(const fs::path& model, TemporaryFolder& scratch, GgufParts parts) {
  if (!names_gguf(model)) return ModelFolder{model};
  ModelFolder unpacked{scratch.path() / "gguf"};
  ASSIGN_OR_RETURN(unpacked.tensors, unpack_gguf(local_files(), model, unpacked.path, parts));
  return unpacked;
}

Status unpack_tokenizer(const fs::path& folder, TemporaryFolder& scratch, v1::DatasetFile& file) {
  const std::string& name = spec::tokenizer_path(file);
  if (name.empty() || !names_gguf(folder / name)) return {};
  const fs::path unpacked = scratch.path() / "gguf-tokenizer";
  const auto written = unpack_gguf(local_files(), folder / name, unpacked, GgufParts::kTokenizer);
  if (!written.ok()) {
    Error error =
        field_error(written.error().reason, "dataset.documents.tokenizer", written.error().message);
    error.code = written.error().code;
    return error;
  }
  file.mutable_documents()->set_tokenizer(fs::absolute(unpacked).string());
  return {};
}

}  // namespace trainyard::cli
