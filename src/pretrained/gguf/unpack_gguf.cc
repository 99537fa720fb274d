#include "src/pretrained/gguf/unpack_gguf.h"

#include "src/checkpoint/weights_layout.h"
#include "src/pretrained/gguf/gguf_config.h"
#include "src/pretrained/gguf/gguf_file.h"
#include "src/pretrained/gguf/gguf_tensors.h"
#include "src/pretrained/gguf/gguf_tokenizer.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

std::vector<FileTensor> stored_tensors(const std::vector<MappedTensor>& tensors) {
  std::vector<FileTensor> stored;
  for (const MappedTensor& t : tensors) stored.push_back({t.name, narrowest_dtype(t), t.shape});
  return stored;
}

/// Writes a new file piece by piece.
class PieceWriter {
 public:
  explicit PieceWriter(FileFiller& file) : file_(file) {}
  std::string& buffer() { return buffer_; }
  Status flush_if_full() { return std::ssize(buffer_) < kPieceBytes ? Status() : flush(); }
  Status flush() {
    Status s = file_.write_at(offset_, std::as_bytes(std::span(buffer_)));
    offset_ += std::ssize(buffer_);
    buffer_.clear();
    return s;
  }

 private:
  static constexpr int64_t kPieceBytes = 8 << 20;
  FileFiller& file_;
  int64_t offset_ = 0;
  std::string buffer_;
};

Status write_tensor(const MappedTensor& tensor, std::string_view dtype, PieceWriter& out) {
  const TensorNumbers numbers(tensor);
  std::vector<float> row(static_cast<size_t>(numbers.row_length()));
  for (int64_t i = 0; i < numbers.rows(); ++i) {
    numbers.read_row(i, row);
    append_numbers(row, dtype, out.buffer());
    if (Status s = out.flush_if_full(); !s.ok()) return s;
  }
  return {};
}

Status write_weights(Files& files, const std::vector<MappedTensor>& tensors,
                     const std::vector<FileTensor>& stored, const fs::path& path) {
  ASSIGN_OR_RETURN(const WeightsLayout layout, lay_out_weights(stored));
  ASSIGN_OR_RETURN(const std::unique_ptr<FileFiller> filler, files.create_file(path, layout.bytes));
  PieceWriter out(*filler);
  out.buffer() = layout.prefix;
  for (const size_t i : layout.order) {
    if (Status s = write_tensor(tensors[i], stored[i].dtype, out); !s.ok()) return s;
  }
  if (Status s = out.flush(); !s.ok()) return s;
  return filler->finish();
}

Status write_texts(Files& files, const TokenizerFiles& texts, const fs::path& folder) {
  for (const auto& [name, text] : texts) {
    if (Status s = replace_file(files, folder / name, text); !s.ok()) return s;
  }
  return {};
}

Result<std::vector<FileTensor>> unpack_file(Files& files, const GgufFile& file,
                                            const fs::path& folder, GgufParts parts) {
  ASSIGN_OR_RETURN(TokenizerFiles texts, gguf_tokenizer(file));
  if (parts == GgufParts::kTokenizer && texts.empty()) {
    return gguf_error("tokenizer.ggml.model", "is missing: the file has no tokenizer");
  }
  if (Status s = files.create_directories(folder); !s.ok()) return std::move(s).error();
  if (parts == GgufParts::kTokenizer) {
    if (Status s = write_texts(files, texts, folder); !s.ok()) return std::move(s).error();
    return std::vector<FileTensor>();
  }
  ASSIGN_OR_RETURN(const GgufArchitecture* const architecture, find_gguf_architecture(file));
  ASSIGN_OR_RETURN(texts["config.json"], gguf_config(file, *architecture));
  ASSIGN_OR_RETURN(const LanguageModel model, read_model_config(texts["config.json"]));
  ASSIGN_OR_RETURN(const auto tensors, map_tensors(file, *architecture, model));
  std::vector<FileTensor> stored = stored_tensors(tensors);
  if (Status s = write_texts(files, texts, folder); !s.ok()) return std::move(s).error();
  if (parts == GgufParts::kDescription) return stored;
  if (Status s = write_weights(files, tensors, stored, folder / "model.safetensors"); !s.ok()) {
    return std::move(s).error();
  }
  return stored;
}

}  // namespace

Result<std::vector<FileTensor>> unpack_gguf(Files& files, const fs::path& path,
                                            const fs::path& folder, GgufParts parts) {
  const auto named = [&](Error error) {
    if (!is_of_file_error(error.reason)) {
      error.message = path.filename().string() + ": " + error.message;
    }
    return error;
  };
  const Result<GgufFile> file = GgufFile::open(path);
  if (!file.ok()) return named(file.error());
  auto stored = unpack_file(files, *file, folder, parts);
  if (!stored.ok()) return named(std::move(stored).error());
  return stored;
}

}  // namespace trainyard
