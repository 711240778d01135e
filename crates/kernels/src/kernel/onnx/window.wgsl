// A window over three dimensions: sizes of x, y and the window, its steps and dilations, pads in front of x and behind it.
override X0: u32;
override X1: u32;
override X2: u32;
override Y0: u32;
override Y1: u32;
override Y2: u32;
override K0: u32;
override K1: u32;
override K2: u32;
override S0: i32;
override S1: i32;
override S2: i32;
override D0: i32;
override D1: i32;
override D2: i32;
override P0: i32;
override P1: i32;
override P2: i32;
override E0: i32;
override E1: i32;
override E2: i32;

