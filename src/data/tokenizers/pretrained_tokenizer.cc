#include "src/data/tokenizers/pretrained_tokenizer.h"

#include <algorithm>
#include <array>

#include "src/base/text.h"
#include "src/data/tokenizers/sentence_piece.h"
#include "src/data/tokenizers/token_pipeline.h"
#include "src/data/tokenizers/token_ranks.h"
#include "src/data/tokenizers/tokenizer_json.h"
#include "src/data/tokenizers/tokenizer_settings.h"

namespace trainyard {
namespace {

constexpr std::array<std::string_view, 10> kFileNames = {"tokenizer.json",
                                                         "tokenizer.model",
                                                         "tekken.json",
                                                         "tokenizer_config.json",
                                                         "special_tokens_map.json",
                                                         "added_tokens.json",
                                                         "generation_config.json",
                                                         "chat_template.jinja",
                                                         "chat_template.json",
                                                         "config.json"};

/// Returns the file that has the vocabulary.
Result<TokenizerFiles::const_iterator> find_vocabulary(const TokenizerFiles& files) {
  for (const char* name : {"tokenizer.json", "tekken.json", "tokenizer.model"}) {
    const auto it = files.find(name);
    if (it != files.end()) return it;
  }
  auto found = files.end();
  for (auto it = files.begin(); it != files.end(); ++it) {
    if (is_tokenizer_file(it->first)) continue;
    if (found != files.end()) {
      return tokenizer_error(it->first, "there is another file that may be the tokenizer, " +
                                            quoted_value(found->first));
    }
    found = it;
  }
  if (found != files.end()) return found;
  return make_error(ErrorCode::kInvalidArgument, "TOKENIZER_INVALID",
                    "there is no tokenizer: expected tokenizer.json, tokenizer.model or "
                    "tekken.json; transformers writes tokenizer.json with "
                    "AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)");
}

}  // namespace

struct PretrainedTokenizer::Parts {
  std::shared_ptr<TokenPipeline> pipeline;
  TokenizerSettings settings;
  int32_t begin = -1, end = -1, unknown = -1, padding = -1;
  std::vector<int32_t> stop;
};

namespace {

/// Returns the id of a token that a settings file names; -1: it names none.
Result<int32_t> find_named(const TokenPipeline& pipeline, const std::string& name,
                           const char* field) {
  if (name.empty()) return -1;
  const int32_t id = pipeline.find(name);
  if (id >= 0) return id;
  return tokenizer_error(std::string("tokenizer_config.json.") + field,
                         "the tokenizer has no token " + quoted_value(name));
}

/// A tokenizer and its special tokens, as the file with the vocabulary gives them.
struct VocabularyRead {
  std::shared_ptr<TokenPipeline> pipeline;
  SentencePieceTokens special;
};

/// Reads the file that has the vocabulary, by its content.
Result<VocabularyRead> read_vocabulary_file(const std::string& text, const std::string& name) {
  VocabularyRead out;
  const size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool json = first != std::string::npos && text[first] == '{';
  const bool piece = !text.empty() && text[0] == '\n';
  if (json && text.find("\"token_bytes\"") != std::string::npos) {
    ASSIGN_OR_RETURN(out.pipeline, read_tekken(text, name));
    out.special = {out.pipeline->find("<s>"), out.pipeline->find("</s>"),
                   out.pipeline->find("<unk>"), out.pipeline->find("<pad>")};
  } else if (json) {
    ASSIGN_OR_RETURN(out.pipeline, read_tokenizer_json(text, name));
  } else if (piece) {
    ASSIGN_OR_RETURN(out.pipeline, read_sentence_piece(text, name, out.special));
  } else {
    return tokenizer_error(name,
                           "is neither JSON nor a SentencePiece model; a file of ranks alone does "
                           "not say how text is cut, so that tokenizer.json is needed");
  }
  return out;
}

/// Puts the begin and end tokens around texts where the file does not say it: as the settings say,
/// else a begin token for SentencePiece's models.
void add_default_affixes(const TokenizerSettings& settings, const SentencePieceTokens& special,
                         int32_t begin, int32_t end, TokenPipeline& pipeline) {
  if (special.unknown < 0) return;  // tokenizer.json says it itself
  if (begin >= 0 && settings.add_begin.value_or(true)) pipeline.prefix.push_back(begin);
  if (end >= 0 && settings.add_end.value_or(false)) pipeline.suffix.push_back(end);
}

/// Adds the tokens of the settings that the tokenizer does not have.
Status add_settings_tokens(const std::vector<AddedToken>& tokens, TokenPipeline& pipeline) {
  for (const AddedToken& token : tokens) {
    if (pipeline.find_added(token.id) != nullptr) continue;
    if (Status s = pipeline.add_token(token, "tokenizer_config.json.added_tokens_decoder");
        !s.ok()) {
      return s;
    }
  }
  return {};
}

}  // namespace

bool is_tokenizer_file(std::string_view name) {
  return std::ranges::find(kFileNames, name) != kFileNames.end();
}

PretrainedTokenizer::PretrainedTokenizer(std::shared_ptr<const Parts> parts)
    : parts_(std::move(parts)) {}

Result<PretrainedTokenizer> PretrainedTokenizer::read(const TokenizerFiles& files) {
  ASSIGN_OR_RETURN(const auto file, find_vocabulary(files));
  auto parts = std::make_shared<Parts>();
  ASSIGN_OR_RETURN(parts->settings, read_tokenizer_settings(files));
  const TokenizerSettings& settings = parts->settings;
  ASSIGN_OR_RETURN(VocabularyRead vocabulary, read_vocabulary_file(file->second, file->first));
  parts->pipeline = std::move(vocabulary.pipeline);
  TokenPipeline& pipeline = *parts->pipeline;
  if (Status s = add_settings_tokens(settings.added, pipeline); !s.ok())
    return std::move(s).error();
  pipeline.finish();
  ASSIGN_OR_RETURN(parts->begin, find_named(pipeline, settings.begin, "bos_token"));
  ASSIGN_OR_RETURN(parts->end, find_named(pipeline, settings.end, "eos_token"));
  parts->unknown = pipeline.find(settings.unknown);
  parts->padding = pipeline.find(settings.padding);
  const SentencePieceTokens& special = vocabulary.special;
  if (settings.begin.empty()) parts->begin = special.begin;
  if (settings.end.empty()) parts->end = special.end;
  if (parts->unknown < 0) parts->unknown = special.unknown;
  if (parts->padding < 0) parts->padding = special.padding;
  add_default_affixes(settings, special, parts->begin, parts->end, pipeline);
  for (const int32_t id : settings.stop_ids) {
    if (pipeline.name(id).empty()) {
      return tokenizer_error("generation_config.json.eos_token_id",
                             "the tokenizer has no token with the id " + std::to_string(id));
    }
    parts->stop.push_back(id);
  }
  if (parts->end < 0 && !parts->stop.empty()) parts->end = parts->stop.front();
  if (parts->end >= 0 && std::ranges::count(parts->stop, parts->end) == 0) {
    parts->stop.insert(parts->stop.begin(), parts->end);
  }
  return PretrainedTokenizer(std::move(parts));
}

void PretrainedTokenizer::encode(std::string_view text, bool special, std::vector<int32_t>& out,
                                 std::vector<uint32_t>* starts) const {
  parts_->pipeline->encode(text, special, out, starts);
}
std::span<const int32_t> PretrainedTokenizer::prefix() const { return parts_->pipeline->prefix; }
std::span<const int32_t> PretrainedTokenizer::suffix() const { return parts_->pipeline->suffix; }

std::string PretrainedTokenizer::decode(std::span<const int32_t> tokens) const {
  return parts_->pipeline->decode(tokens);
}
std::string PretrainedTokenizer::piece(int32_t token) const {
  return parts_->pipeline->piece(token);
}
std::optional<int32_t> PretrainedTokenizer::find(std::string_view token) const {
  const int32_t id = parts_->pipeline->find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}
std::string_view PretrainedTokenizer::name(int32_t token) const {
  return parts_->pipeline->name(token);
}
bool PretrainedTokenizer::is_special(int32_t token) const {
  const AddedToken* added = parts_->pipeline->find_added(token);
  return added != nullptr && added->special;
}

int64_t PretrainedTokenizer::vocabulary_size() const { return parts_->pipeline->size(); }
int32_t PretrainedTokenizer::end_token() const { return parts_->end; }

namespace {
std::optional<int32_t> if_known(int32_t token) {
  return token < 0 ? std::nullopt : std::optional(token);
}
}  // namespace

std::optional<int32_t> PretrainedTokenizer::begin_token() const { return if_known(parts_->begin); }
std::optional<int32_t> PretrainedTokenizer::padding_token() const {
  return if_known(parts_->padding);
}
std::optional<int32_t> PretrainedTokenizer::unknown_token() const {
  return if_known(parts_->unknown);
}
std::span<const int32_t> PretrainedTokenizer::stop_tokens() const { return parts_->stop; }
const std::string& PretrainedTokenizer::chat_template() const {
  return parts_->settings.chat_template;
}

}  // namespace trainyard
