# 100 TCP SACK flows over 1 Gbit/s for 20 s in ns-2: the case `a` of the suite `speed`.
set ns [new Simulator]
set r1 [$ns node]
set r2 [$ns node]
proc link {a b rate delay packets} {
    global ns
    $ns duplex-link $a $b $rate $delay DropTail
    $ns queue-limit $a $b $packets
    $ns queue-limit $b $a $packets
}
link $r1 $r2 1Gb 20ms 5500
set start [new RandomVariable/Uniform]
$start set min_ 0.0
$start set max_ 1.0
for {set i 0} {$i < 100} {incr i} {
    set source [$ns node]
    set to [$ns node]
    link $source $r1 100Mb 1ms 1000000
    link $to $r2 100Mb 1ms 1000000
    set tcp [new Agent/TCP/Sack1]
    $tcp set packetSize_ 1000
    $tcp set window_ 100000
    set sink [new Agent/TCPSink/Sack1]
    $ns attach-agent $source $tcp
    $ns attach-agent $to $sink
    $ns connect $tcp $sink
    $ns at [$start value] "[$tcp attach-app FTP] start"
}
$ns at 20.0 "puts simulated; flush stdout; exit 0"
$ns run
