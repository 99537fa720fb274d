// A shared library that is no Trainyard module. With TRAINYARD_TEST_NEEDS it needs another library.
#ifdef TRAINYARD_TEST_NEEDS
extern "C" int trainyard_test_needed();
extern "C" int trainyard_test_something() { return trainyard_test_needed(); }
#else
extern "C" int trainyard_test_needed() { return 1; }
#endif
