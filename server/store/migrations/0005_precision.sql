-- A recipe without a precision asked for FP32 (1) and now asks for TF32; the recipe of a stored job always names its own.
-- The bytes in front are JobSpec {recipe {precision: FP32}}: fields 3 and 61. Messages that stand one behind the other
-- are read as one, in which the later value of a field counts, so a precision that the spec names stays.

UPDATE jobs SET spec = CAST(x'1A03E80301' || spec AS BLOB);
