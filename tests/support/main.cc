// main() of every test program. Exit status 77 means that all tests were skipped, and CTest reports
// it as such, so that a GPU test without a GPU never passes silently. A CTest pattern on the output
// would hide failures, since it takes precedence over the exit status.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
#ifdef TRAINYARD_TEST_TOKENIZER_PROGRAM  // the program is not in the folder of the tests
  ::setenv("TRAINYARD_TOKENIZER_PROGRAM", TRAINYARD_TEST_TOKENIZER_PROGRAM, 0);
#endif
  ::testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  const auto& all = *::testing::UnitTest::GetInstance();
  const bool nothing_ran = all.skipped_test_count() > 0 && all.successful_test_count() == 0;
  return status == 0 && nothing_ran ? 77 : status;
}
