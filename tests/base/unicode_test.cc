// Fails if texts that Unicode calls equal get different bytes, or others get equal ones.
#include "src/base/unicode.h"

#include <gtest/gtest.h>

#include "src/base/text.h"

namespace trainyard {
namespace {

TEST(Nfc, ComposesAndLeavesTheRest) {
  EXPECT_EQ(nfc("cafe\u0301"), "caf\u00e9");
  EXPECT_EQ(nfc("caf\u00e9"), "caf\u00e9");
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307") << "marks have an order";
  EXPECT_EQ(nfc("\u212b"), "\u00c5");
  EXPECT_EQ(nfc("\ufb01 \u00b2"), "\ufb01 \u00b2") << "compatibility characters stay";
  EXPECT_EQ(nfc("\xff\xcc"), "\xff\xcc") << "bytes that are not UTF-8 stay";
  EXPECT_EQ(nfc(""), "");
}

TEST(Nfc, TheQuickAnswerIsTrue) {
  for (char32_t c = 1; c < 0x20000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    for (const char* before : {"", "e", "\uac00"}) {
      std::string text = before;
      append_utf8(text, c);
      if (!is_quickly_nfc(text)) continue;
      // For the letter at the end, which composes with nothing before it, the check is not quick.
      text += "\u1100";
      ASSERT_FALSE(is_quickly_nfc(text));
      ASSERT_EQ(nfc(text), text) << std::hex << static_cast<uint32_t>(c);
    }
  }
}

TEST(LowerCase, IsThatOfAllScripts) {
  EXPECT_EQ(lower_case('A'), U'a');
  EXPECT_EQ(lower_case(U'\u00c9'), U'\u00e9');
  EXPECT_EQ(lower_case(U'\u0141'), U'\u0142');
  EXPECT_EQ(lower_case(U'\u042f'), U'\u044f');
  EXPECT_EQ(lower_case(U'\u10a0'), U'\u2d00');
  EXPECT_EQ(lower_case(U'\u0130'), U'i');
  EXPECT_EQ(lower_case(U'\u00df'), U'\u00df');
}

}  // namespace
}  // namespace trainyard
