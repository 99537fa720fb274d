// The tests fail if a chat is rendered differently from transformers with the template of its
// family, tokens are counted that the model does not write itself, or a chat or template that is
// not possible is accepted.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/data/tokenizers/chat_families.h"
#include "src/data/tokenizers/chat_template.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

Json read_golden(const char* path) {
  std::ifstream in(testing::source_path(path));
  return Json::parse(in);
}

/// A tokenizer of bytes with "<s>" and "</s>".
TokenizerFiles byte_files(const std::string& chat_template = {}) {
  TokenizerFiles files;
  const Json golden = read_golden("tests/golden/tokenizers.json");
  for (const Json& entry : golden["tokenizers"]) {
    if (entry["name"] == "prefix_space") files["tokenizer.json"] = entry["text"].get<std::string>();
  }
  Json json = Json::parse(files.at("tokenizer.json"));
  json["pre_tokenizer"]["add_prefix_space"] = false;
  files["tokenizer.json"] = json.dump();
  files["tokenizer_config.json"] =
      Json{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"chat_template", chat_template}}.dump();
  return files;
}

PretrainedTokenizer byte_tokenizer(const std::string& chat_template = {}) {
  Result<PretrainedTokenizer> tokenizer = PretrainedTokenizer::read(byte_files(chat_template));
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.error().message);
  return *std::move(tokenizer);
}

ChatTemplate find_ok(std::string_view name, const PretrainedTokenizer& tokenizer) {
  Result<ChatTemplate> found = ChatTemplate::find(name, tokenizer);
  if (!found.ok()) throw std::runtime_error(found.error().message);
  return *std::move(found);
}

std::vector<Message> messages_of(const Json& chat) {
  std::vector<Message> messages;
  for (const Json& m : chat) messages.push_back({m["role"], m["content"]});
  return messages;
}

std::string text_of(const std::vector<RenderedPart>& parts) {
  std::string text;
  for (const RenderedPart& part : parts) text += part.text;
  return text;
}

std::string refusal_of(std::string_view family, const std::vector<Message>& messages) {
  const auto parts = find_ok(family, byte_tokenizer()).render(messages, false);
  if (parts.ok()) return "accepted";
  EXPECT_EQ(parts.error().reason, "CHAT_INVALID");
  return parts.error().message;
}

TEST(ChatTemplate, RendersAsTransformersDoes) {
  const Json golden = read_golden("tests/golden/chats.json");
  const PretrainedTokenizer tokenizer = byte_tokenizer();
  size_t rendered = 0;
  for (const auto& family : golden["families"].items()) {
    const ChatTemplate found = find_ok(family.key(), tokenizer);
    EXPECT_EQ(found.name(), family.key());
    for (const Json& c : family.value()) {
      const auto messages = messages_of(golden["chats"][c[0].get<size_t>()]);
      const auto parts = found.render(messages, c[1].get<bool>());
      if (c[2].is_null()) {
        EXPECT_FALSE(parts.ok()) << family.key() << ", chat " << c[0];
      } else if (parts.ok()) {
        ++rendered;
        EXPECT_EQ(text_of(*parts), c[2].get<std::string>()) << family.key() << ", chat " << c[0];
      }
    }
  }
  EXPECT_GT(rendered, 450U);
}

TEST(ChatTemplate, AnswersAndTheirEndsAreCounted) {
  const PretrainedTokenizer tokenizer = byte_tokenizer();
  const std::vector<Message> messages = {
      {"user", "Hello"}, {"assistant", "Hi!"}, {"user", "And?"}, {"assistant", "No."}};
  const auto counted = [&](std::string_view family) {
    const auto parts = find_ok(family, tokenizer).render(messages, false);
    std::vector<int32_t> tokens;
    std::vector<uint8_t> counts;
    encode_chat(tokenizer, *parts, tokens, counts);
    EXPECT_EQ(tokens.size(), counts.size());
    std::string text;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (counts[i] == 1) text += tokenizer.piece(tokens[i]);
    }
    return text;
  };
  EXPECT_EQ(counted("chatml"), "Hi!<|im_end|>No.<|im_end|>");
  EXPECT_EQ(counted("llama2"), " Hi! </s> No. </s>");
  EXPECT_EQ(counted("llama3"), "Hi!<|eot_id|>No.<|eot_id|>");
  EXPECT_EQ(counted("olmo2"), "Hi!</s>No.</s>");
  EXPECT_EQ(counted("qwen3"), "Hi!<|im_end|><think>\n\n</think>\n\nNo.<|im_end|>");
}

// The expected texts are transformers' renderings of the template, with the date that is written
// here.
TEST(ChatTemplate, Smollm3SaysWhetherTheModelThinks) {
  const ChatTemplate found = find_ok("smollm3", byte_tokenizer());
  const auto rendered = [&](const std::string& system, std::vector<Message> messages) {
    messages.insert(messages.begin(), {"system", system});
    return text_of(*found.render(messages, true));
  };
  const std::string head =
      "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: 08 July "
      "2025\nReasoning Mode: /no_think\n\n## Custom Instructions\n\n";
  const std::string user = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(rendered("Be short. /no_think  ", {{"user", "Hi"}, {"assistant", "\n\nHello"}}),
            head + "Be short.\n\n" + user +
                "<think>\n\n</think>\nHello<|im_end|>\n<|im_start|>assistant\n"
                "<think>\n\n</think>\n");
  EXPECT_EQ(rendered("/no_think", {{"user", "Hi"}}),
            head + "You are a helpful AI assistant named SmolLM, trained by Hugging Face.\n\n" +
                user + "<think>\n\n</think>\n");
  EXPECT_EQ(rendered("/system_override Be plain. /think", {{"user", "Hi"}}),
            "<|im_start|>system\n Be plain.<|im_end|>\n" + user);
  EXPECT_EQ(refusal_of("smollm3", {{"user", "a"}, {"system", "b"}}),
            "messages[1].role: a system message is only possible as the first one");
}

TEST(ChatTemplate, BlanksThatDashesRemoveMakeNoDifference) {
  const std::string one = "{%- if a -%}\n  {{- 'x' -}}\n\n{# c -#}  {%- endif -%}\n";
  EXPECT_EQ(canonical_template(one, /*compact=*/true),
            canonical_template("{%- if a -%}{{- 'x' -}}{# c -#}{%- endif -%}", /*compact=*/true));
  EXPECT_NE(canonical_template("{% if a %} x", true), canonical_template("{% if a %}x", true));
  EXPECT_EQ(template_digest("{% if a %} x", true), template_digest("{% if a %} x"));
}

TEST(ChatTemplate, ChatsThatAreNotPossibleAreRefused) {
  EXPECT_EQ(refusal_of("chatml", {}), "messages: is empty");
  EXPECT_EQ(refusal_of("chatml", {{"user", "a"}, {"robot", "b"}}),
            "messages[1].role: 'robot' is not known, expected system, user or assistant");
  EXPECT_EQ(refusal_of("chatml", {{"user", ""}}), "messages[0].content: is empty");
  EXPECT_EQ(refusal_of("chatml", {{"user", "\xff"}}), "messages[0].content: is not UTF-8");
  EXPECT_EQ(refusal_of("llama2", {{"user", "a"}, {"user", "b"}}),
            "messages[1].role: is user, expected assistant, since users and assistants take turns");
  EXPECT_EQ(refusal_of("llama2", {{"system", "a"}, {"assistant", "b"}}),
            "messages[1].role: is assistant, expected user, since users and assistants take turns");
  EXPECT_EQ(refusal_of("mistral-v1", {{"user", "a"}, {"system", "b"}}),
            "messages[1].role: a system message is only possible as the first one");
  EXPECT_EQ(refusal_of("mistral-v0", {{"system", "a"}, {"user", "b"}}),
            "messages[0].role: the template mistral-v0 has no system messages, expected user or "
            "assistant");
  EXPECT_TRUE(refusal_of("granite3.3", {{"user", "a"}}).find("today's date") != std::string::npos);
}

TEST(ChatTemplate, ATemplateIsRecognizedByItsText) {
  const std::string text =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
      "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\n' }}{% endif %}";
  EXPECT_EQ(find_ok("", byte_tokenizer(text)).name(), "chatml");
  // The same program in other words.
  const std::string same =
      "{% for message in messages %}{{ \"<|im_start|>\" + message.role + \"\\n\" + "
      "message.content + \"<|im_end|>\\n\" }}{% endfor %}{% if add_generation_prompt %}"
      "{{\"<|im_start|>assistant\\n\"}}{% endif %}\n";
  EXPECT_EQ(find_ok("", byte_tokenizer(same)).name(), "chatml");
  for (const char* other : {"<|im_start|>system", "message['content'] | trim", "<|im_end|> "}) {
    std::string changed = text;
    const bool filter = std::string_view(other).starts_with("message");
    const std::string from = filter ? "message['content']" : "<|im_end|>";
    changed.replace(changed.find(from), from.size(), other);
    const Result<ChatTemplate> found = ChatTemplate::find("", byte_tokenizer(changed));
    ASSERT_FALSE(found.ok()) << other;
    EXPECT_EQ(found.error().reason, "TEMPLATE_UNKNOWN");
    EXPECT_TRUE(found.error().message.find("template: NAME") != std::string::npos);
  }
  EXPECT_NE(canonical_template("{{ a }} {{ b }}"), canonical_template("{{ a }}{{ b }}"));
  EXPECT_NE(canonical_template("{{ 'a' + 'b' | trim }}"), canonical_template("{{ 'ab' | trim }}"));
}

TEST(ChatTemplate, WithoutATemplateOneMustBeNamed) {
  const PretrainedTokenizer tokenizer = byte_tokenizer();
  EXPECT_TRUE(ChatTemplate::find("", tokenizer)
                  .error()
                  .message.starts_with("the tokenizer has no chat template; name the one"));
  EXPECT_TRUE(ChatTemplate::find("mine", tokenizer)
                  .error()
                  .message.starts_with("the template 'mine' is not known; name the one"));
  TokenizerFiles files = byte_files();
  files.erase("tokenizer_config.json");
  const PretrainedTokenizer bare = *PretrainedTokenizer::read(files);
  EXPECT_EQ(ChatTemplate::find("llama2", bare).error().message,
            "the template llama2 needs the begin token (bos_token), which tokenizer_config.json "
            "does not name");
  EXPECT_TRUE(ChatTemplate::find("chatml", bare).ok());
}

}  // namespace
}  // namespace trainyard
